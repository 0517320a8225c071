"""Writes docs/events.md from the vocabulary in agl_streams/events.py: ``python tools/events_doc.py``.

``tests/guards/test_docs.py`` fails when the page is not what this writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from agl_streams.events import COMMON, TYPES, EventType
from agl_streams.library import SCHEMA, library

PAGE = Path(__file__).resolve().parents[1] / "docs" / "events.md"

INTRODUCTION = f"""\
# Events

<!-- Written by tools/events_doc.py from agl_streams/events.py; change it there. -->

The log of a shard (`agl:{{<namespace>.<shard>}}:log`) is a stream with one entry per event. An event carries a
decision, that is the resulting statuses, ids and times, so that whoever reads it later has nothing to decide. Values
are text, times are integer microseconds since 1970. The id of the entry gives the order; `n` shows whether one is
missing.

Bodies, resources and spans are not in the log. They lie beside it, in keys that the event names ("payload" below), and
are never changed once written. A fold or replay that meets a type that it does not know stops and says so: the log was
written by a newer release. This is schema {SCHEMA}. How a type is added: [adding-an-event.md](adding-an-event.md).

In every event:
"""


def page() -> str:
    """The whole page."""
    writers = _writers()
    parts = [INTRODUCTION, _table(("field", "meaning"), COMMON.items())]
    parts += [_section(name, kind, writers[name]) for name, kind in TYPES.items()]
    parts += ["\n## Fields\n", _table(("field", "meaning"), _glossary())]
    return "\n".join(parts) + "\n"


def _section(name: str, kind: EventType, commands: list[str]) -> str:
    written = ", ".join(f"`{command}`" for command in commands)
    return (
        f"\n## {name}\n\n{_sentence(kind.when)}\n\n"
        f"- Written by: {written}\n"
        f"- Changes: {_plain(kind.changes)}\n"
        f"- Fields: {', '.join(f'`{field}`' for field in kind.fields)}"
    )


def _writers() -> dict[str, list[str]]:
    """The commands that may write each type, as their Lua headers declare it; replay writes any and is left out."""
    writers: defaultdict[str, list[str]] = defaultdict(list)
    for command in library().commands.values():
        for name in command.events:
            writers[name].append(command.name)
    return writers


def _glossary() -> list[tuple[str, str]]:
    """Each field once; one that means different things in different types has a row for each meaning."""
    return sorted({field for kind in TYPES.values() for field in kind.fields.items()})


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {_plain(meaning)} |" for name, meaning in rows)])


def _sentence(text: str) -> str:
    first = text.partition(" ")[0]
    # A first word with an underscore is a name, and stays as it is.
    return _plain(text if "_" in first else text[0].upper() + text[1:]) + "."


def _plain(text: str) -> str:
    """Text as Markdown shows it: ``<rollout>`` would otherwise be taken for a tag."""
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
