"""The Redis Functions library: the files of ``lua/`` joined into one source, with versioned names.

Function names are global on a server and ``FUNCTION LOAD REPLACE`` swaps code under running workers. So library and
function names carry the schema and a hash of the source: two releases run side by side on one server.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from agl_streams.keys import fixed_keys
from agl_streams.projections import ATTEMPT, FOLDED, FOLDED_ALWAYS, ROLLOUT, ROLLOUT_STATE, SUMS, WORKER, WORKER_LIVE

SCHEMA: Final = 2
"""Version of events and projections. Raised when an older release could no longer read what this one writes."""

_PREFIX: Final = "agl_"
LIBRARIES: Final = f"{_PREFIX}*"
"""The libraries of all releases, as a pattern."""

SEQUENCE_GAP: Final = 1000  # span numbers issued before a rebuild but never seen: more than one attempt has in flight
CLAIM_MEMORY_S: Final = 600  # how long a claim's answer can be asked for again: far above any retry
REQUEST_MEMORY_S: Final = 60  # how long a request is told from its repeat: retries last 10 s; busy servers hold many
LEAVE_LIMIT: Final = 100  # entries given back by one call of leave
CLAIM_CONSUMER: Final = "claim"  # claims take and begin in one step, so this consumer never has a pending entry

_HEADER: Final = re.compile(r"^-- (name|does|flags|keys|args|result|events): ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """One function, from the header of its file.

    Attributes:
        name: the command's name, as in ``enqueue``.
        flags: Redis function flags: ``no-writes``, ``allow-oom``.
        events: the event types that it may emit.
    """

    name: str
    flags: tuple[str, ...]
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """The library as it is loaded into a server.

    Attributes:
        name: name of the library.
        source: its whole text.
        commands: its commands by name.
    """

    name: str
    source: str
    commands: dict[str, Command]

    def function(self, command: str) -> str:
        """The global name of a command's function."""
        return f"{self.name}_{command}"


def lua_files() -> dict[str, str]:
    """The sources by file name, in the order in which they are joined."""
    folder = files("agl_streams").joinpath("lua")
    return {entry.name: entry.read_text() for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)}


def header(source: str) -> dict[str, str]:
    """The header of a command's file; empty for a file that only helps others."""
    return {match[1]: match[2] for match in _HEADER.finditer(source)}


def build(sources: dict[str, str]) -> Library:
    """Join sources into a library. ``library()`` is the one to use; tests build variants with faults."""
    commands: dict[str, Command] = {}
    for source in sources.values():
        head = header(source)
        if head:
            flags = tuple(head["flags"].replace(",", " ").split())
            commands[head["name"]] = Command(head["name"], flags, tuple(head["events"].replace(",", " ").split()))
    text = "\n".join([_constants(), *sources.values()])
    name = f"{_PREFIX}{SCHEMA}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    registered = "\n".join(_registration(name, command) for command in commands.values())
    return Library(name, f"#!lua name={name}\n{text}\n{registered}\n", commands)


@cache
def library() -> Library:
    """The library of this release."""
    return build(lua_files())


def _constants() -> str:
    lists = {
        "ROLLOUT": ROLLOUT,
        "ROLLOUT_STATE": ROLLOUT_STATE,
        "ATTEMPT": ATTEMPT,
        "FOLDED": FOLDED,
        "FOLDED_ALWAYS": FOLDED_ALWAYS,
        "WORKER": WORKER,
        "WORKER_LIVE": WORKER_LIVE,
        "SUMS": SUMS,
    }
    lines = [
        f"local SCHEMA, SEQUENCE_GAP = {SCHEMA}, {SEQUENCE_GAP}",
        f"local CLAIM_MEMORY_S, REQUEST_MEMORY_S = '{CLAIM_MEMORY_S}', '{REQUEST_MEMORY_S}'",
        f"local LEAVE_LIMIT, CLAIM_CONSUMER = {LEAVE_LIMIT}, '{CLAIM_CONSUMER}'",
    ]
    for name, names in lists.items():
        lines.append(f"local {name} = {{ {', '.join(repr(field) for field in names)} }}")
    kinds = ", ".join(f"['{name}'] = '{kind}'" for name, kind in fixed_keys().items())
    lines.append(f"local FIXED_KEYS = {{ {kinds} }}")
    for name in ("ROLLOUT", "ATTEMPT"):
        places = ", ".join(f"['{field}'] = {at}" for at, field in enumerate(lists[name], start=1))
        lines.append(f"local {name}_AT = {{ {places} }}")
    return "\n".join(lines)


def _registration(library_name: str, command: Command) -> str:
    flags = ", ".join(repr(flag) for flag in command.flags)
    return (
        f"redis.register_function{{function_name='{library_name}_{command.name}', "
        f"callback=C.{command.name}, flags={{{flags}}}}}"
    )
