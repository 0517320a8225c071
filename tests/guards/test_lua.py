"""Lua files open with what a caller must know, and what they declare is what they do."""

from __future__ import annotations

import ast
import re

import pytest

from agl_streams.errors import OUTCOMES
from tests.guards.sources import Source, call_name, lua_sources, read

HEADER = ("name", "does", "flags", "keys", "args", "result", "events")
FLAGS = {"allow-oom", "no-writes"}
ANY = "any"  # replay writes recorded events of every type

_FIELD = re.compile(r"-- (?P<name>[a-z]+):(?P<value>.*)")
_REFUSAL = re.compile(r"; or (?P<word>[a-z_]+)")
_RETURNED = re.compile(r"return (?:nil, |\{ )'(?P<word>[a-z_]+)'")
_EMIT = re.compile(r"U\.emit\(\s*ctx,\s*'(?P<type>[a-z_]+)'")


def header(source: Source) -> dict[str, str] | None:
    """The header's fields in order, or None for a helper file (one that begins with a plain comment)."""
    lines = source.text.splitlines()
    if not lines[0].startswith("-- name:"):
        return None
    fields: dict[str, str] = {}
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            break
        fields[match["name"]] = match["value"].strip()
    return fields


def words(value: str) -> set[str]:
    return {word.strip() for word in value.split(",") if word.strip()}


def complaints(source: Source) -> list[str]:
    fields = header(source)
    if fields is None:
        starts = source.text.startswith("-- ")
        return [] if starts else [f"{source.name} opens neither with a header nor with a comment"]
    found: list[str] = []
    if tuple(fields) != HEADER:
        found.append(f"{source.name}: the header has {tuple(fields)}, not {HEADER}")
    stem = source.name.rpartition("/")[2].removesuffix(".lua")
    if fields.get("name") != stem:
        found.append(f"{source.name}: the header's name is {fields.get('name')!r}")
    if not words(fields.get("flags", "")) <= FLAGS:
        found.append(f"{source.name}: unknown flags {fields.get('flags')!r}")
    found += [f"{source.name}: empty {name}" for name in ("does", "keys", "args", "result") if not fields.get(name)]
    return found


def command_headers() -> dict[str, dict[str, str]]:
    found = {source.name: fields for source in lua_sources() if (fields := header(source)) is not None}
    assert found, "no Lua file has a header"
    return found


def test_every_lua_file_opens_with_its_header() -> None:
    """A command's file declares name, purpose, flags, keys, arguments, result and events; a helper says what it is."""
    assert [line for source in lua_sources() for line in complaints(source)] == []


def test_each_declared_command_exists_once() -> None:
    """Each header stands for exactly one command function of its name, in its file or a file that goes with it."""
    code = "\n".join(source.text for source in lua_sources())
    for fields in command_headers().values():
        assert len(re.findall(rf"^function C\.{fields['name']}\(keys, args\)", code, re.MULTILINE)) == 1, fields["name"]


def commands_called_from_python() -> list[str]:
    calls = [node for node in ast.walk(read("agl_streams/functions.py").tree) if isinstance(node, ast.Call)]
    return [
        str(call.args[0].value)
        for call in calls
        if call_name(call) in ("self._write", "self._read", "self._read_many", "self._bare")
        and isinstance(call.args[0], ast.Constant)
    ]


def test_each_command_has_its_wrapper() -> None:
    """The commands with a header are those that the typed door of functions.py calls."""
    assert set(commands_called_from_python()) == {fields["name"] for fields in command_headers().values()}


def test_outcome_words_and_errors_agree() -> None:
    """Each refusal that a command declares or returns has its error, and each error's word can come from a command."""
    code = "\n".join(source.text for source in lua_sources())
    declared = {word for fields in command_headers().values() for word in _REFUSAL.findall(fields["result"])}
    returned = set(_RETURNED.findall(code)) - {"ok"}
    assert declared
    assert returned
    assert declared | returned <= set(OUTCOMES) | {"false"}
    assert [word for word in OUTCOMES if f"'{word}'" not in code] == []


def test_read_commands_emit_nothing() -> None:
    """A command that is registered as reading declares no event."""
    readers = {name: fields for name, fields in command_headers().items() if "no-writes" in words(fields["flags"])}
    assert readers
    assert [name for name, fields in readers.items() if words(fields["events"])] == []


def test_declared_and_emitted_events_agree() -> None:
    """Every event type in the code is declared by a command, and every declared type stands in the code."""
    declared = set[str]().union(*(words(fields["events"]) for fields in command_headers().values())) - {ANY}
    code = "\n".join(source.text for source in lua_sources())
    emitted = set(_EMIT.findall(code))
    assert emitted
    assert emitted <= declared
    assert [event for event in sorted(declared) if f"'{event}'" not in code] == []


@pytest.mark.parametrize(
    "text",
    ["local X = 1\n", "-- name: other\n-- does: x\n", "-- name: sample\nfunction C.sample(keys, args) end\n"],
)
def test_a_file_without_its_header_is_found(text: str) -> None:
    """A missing comment, a missing field and a wrong name are reported."""
    assert complaints(Source("agl_streams/lua/sample.lua", text))
