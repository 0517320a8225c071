"""What the documentation says exists: links, commands, flags, targets, settings, files, events and reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
import typer

from agl_proxy import checks
from agl_streams.cli import app
from agl_streams.config import ENV_PREFIX, Settings
from tests.guards.sources import ROOT, Source, all_package_sources, project_files, read
from tools.events_doc import page

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
_FENCE = re.compile(r"```\w*\n(?P<body>.*?)```", re.DOTALL)
_CODE = re.compile(r"`(?P<code>[^`\n]+)`")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
_ROW = re.compile(r"^\| (?P<first>[^|]+) \|", re.MULTILINE)

Rule = Callable[[Source], Iterator[str]]


def documents() -> list[Source]:
    """README, docs and the other pages at the root."""
    found = [read(name) for name in project_files() if re.fullmatch(r"(docs/)?[^/]+\.md", name)]
    assert {"README.md", "docs/index.md"} <= {source.name for source in found}
    return found


def codes(text: str) -> Iterator[str]:
    """What is set as code: each line of a fenced block, and each piece between backticks."""
    for fence in _FENCE.finditer(text):
        yield from fence["body"].splitlines()
    for piece in _CODE.finditer(_FENCE.sub("", text)):
        yield piece["code"]


def broken_links(source: Source) -> Iterator[str]:
    folder = PurePosixPath(source.name).parent
    for match in _LINK.finditer(_FENCE.sub("", source.text)):
        path, _, anchor = match["target"].partition("#")
        if "://" in path:
            continue
        target = ROOT / folder / path
        if path and not target.exists():
            yield f"{source.name}: {match['target']} leads nowhere"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8") if path else source.text):
            yield f"{source.name}: {match['target']} has no such heading"


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    words = (re.sub(r"[^\w\- ]", "", match["text"].lower()) for match in _HEADING.finditer(text))
    return {word.replace(" ", "-") for word in words}


def cli() -> Any:
    """The command line as typer's own copy of click has it, which is not for others to import by name."""
    return typer.main.get_command(app)


def below(command: Any) -> dict[str, Any]:
    """The commands of a group by name; of a command itself none."""
    return getattr(command, "commands", {})


def find_command(words: list[str]) -> Any:
    """The command that begins with these words; None when there is none."""
    found = cli()
    for word in words:
        if not below(found):
            break
        found = below(found).get(word)
    return found


def flags(command: Any) -> set[str]:
    """The long options of a command and of those below it."""
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *map(flags, below(command).values()))


def wrong_commands(source: Source) -> Iterator[str]:
    for code in codes(source.text):
        if code.startswith("agl-streams "):
            words = code.removesuffix("&").split()[1:]
            found = find_command(words)
            if found is None:
                yield f"{source.name}: there is no command {code!r}"
            else:
                unknown = set(_FLAG.findall(code)) - flags(found)
                yield from (f"{source.name}: {code!r} has no option {flag}" for flag in sorted(unknown))
        elif code.startswith("--"):
            unknown = set(_FLAG.findall(code)) - flags(cli())
            yield from (f"{source.name}: no command has the option {flag}" for flag in sorted(unknown))


def wrong_targets(source: Source) -> Iterator[str]:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile").text, re.MULTILINE))
    for code in codes(source.text):
        match = re.match(r"make ([a-z]+)", code)
        if match and match[1] not in targets:
            yield f"{source.name}: the Makefile has no target {match[1]!r}"


def first_cells(text: str) -> set[str]:
    """The names set as code in the first column of the tables of a text."""
    return {piece["code"] for row in _ROW.finditer(text) for piece in _CODE.finditer(row["first"])}


def section(text: str, heading: str) -> str:
    """The part of a page below a heading, to the next one of its level."""
    level = heading.partition(" ")[0]
    start = text.index(f"\n{heading}\n") + len(heading) + 2
    end = text.find(f"\n{level} ", start)
    return text[start : end if end >= 0 else None]


def test_every_link_leads_somewhere() -> None:
    """Each relative link of a page leads to a file of the project, and its anchor to a heading there."""
    assert [line for source in documents() for line in broken_links(source)] == []


def test_every_command_and_option_exists() -> None:
    """Each `agl-streams` command that a page shows can be given, with the options that it is shown with."""
    assert any(code.startswith("agl-streams ") for source in documents() for code in codes(source.text))
    assert [line for source in documents() for line in wrong_commands(source)] == []


def test_every_make_target_exists() -> None:
    """Each `make` target that a page names is in the Makefile."""
    assert [line for source in documents() for line in wrong_targets(source)] == []


def test_the_page_of_events_is_up_to_date() -> None:
    """docs/events.md is what tools/events_doc.py writes."""
    assert read("docs/events.md").text == page(), "run: python tools/events_doc.py"


def test_the_table_of_settings_is_complete() -> None:
    """Each setting that has an effect is in the table, with its default, and no other is."""
    text = section(read("docs/operations.md").text, "## Settings")
    rows = dict(re.findall(r"^\| `(AGL_\w+)` \| ([^|]*?) ?\|", text, re.MULTILINE))
    fields = Settings.model_fields
    assert set(rows) == {ENV_PREFIX + name.upper() for name in fields}
    shown = {
        ENV_PREFIX + name.upper(): field.default for name, field in fields.items() if field.default_factory is None
    }
    assert {name: rows[name] for name in shown} == {
        name: "" if default is None else f"`{default}`" for name, default in shown.items()
    }


def test_every_setting_has_an_effect() -> None:
    """Each setting is read by some package: one without effect would promise what it does not do."""
    read_names = {name for source in all_package_sources() for name in re.findall(r"settings\.(\w+)", source.text)}
    assert set(Settings.model_fields) - read_names == set()


def test_every_reason_of_an_incomplete_capture_is_explained() -> None:
    """The page of the proxy explains each reason that it may store, and none that it may not."""
    reasons = {value for name, value in vars(checks).items() if name.isupper() and isinstance(value, str)}
    text = section(read("docs/proxy.md").text, "## How to read an incomplete capture")
    assert reasons
    assert first_cells(text) == reasons


def test_every_log_event_exists() -> None:
    """Each log event that a page explains is written somewhere."""
    named = first_cells(section(read("docs/operations.md").text, "## Logs"))
    assert named
    code = "\n".join(source.text for source in all_package_sources())
    assert [event for event in sorted(named) if f'"{event}"' not in code] == []


def test_the_way_of_a_rollout_names_files_that_exist() -> None:
    """The files that the page of concepts sends its reader to are there."""
    text = section(read("docs/concepts.md").text, "## A rollout's way through the files")
    files = [code for code in codes(text) if re.search(r"/|\.py$|\.lua$", code)]
    assert files
    names = ["/" + name for name in project_files()]
    assert [file for file in files if not any(name.endswith("/" + file) or f"/{file}" in name for name in names)] == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (broken_links, "[page](nowhere.md)"),
        (broken_links, "[heading](#nowhere)"),
        (broken_links, "[heading](LICENSE#nowhere)"),
        (wrong_commands, "`agl-streams fly`"),
        (wrong_commands, "```sh\nagl-streams bench fly\n```"),
        (wrong_commands, "`agl-streams proxy --fly`"),
        (wrong_commands, "`--fly`"),
        (wrong_targets, "`make fly`"),
    ],
)
def test_what_does_not_exist_is_found(rule: Rule, text: str) -> None:
    """A link, command, option or target that is not there is reported."""
    assert len(list(rule(Source("sample.md", text)))) == 1


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (broken_links, "# A heading\n[heading](#a-heading) [file](LICENSE) [folder](tests/story) [web](https://x.y/z)"),
        (
            wrong_commands,
            "`agl-streams worker MODULE:AGENT --concurrency 4 &` `agl-streams bench core --json` `--strip`",
        ),
        (wrong_targets, "`make demo`"),
    ],
)
def test_what_exists_passes(rule: Rule, text: str) -> None:
    """A link, command, option or target that is there is not reported."""
    assert list(rule(Source("sample.md", text))) == []
