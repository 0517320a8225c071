"""The command line: what it prints, how it fails, and that a part runs on the embedded engine until it is stopped."""

from __future__ import annotations

import json
import re
import signal
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from agl_streams.parts import GROUP
from tests.support.command_line import run
from tests.support.processes import ROOT, ProcessGroup

PARTS = ("aggregate", "proxy", "worker")
COMMANDS = (*PARTS, "ls", "show", "enqueue", "cancel", "dead", "doctor", "demo", "bench", "version")


def test_help_names_every_command() -> None:
    """The help lists all commands, and asking for it is no error."""
    asked = run("--help")
    assert asked.returncode == 0
    assert [name for name in COMMANDS if name not in asked.stdout] == []


def test_the_version_is_told_to_people_and_scripts() -> None:
    """`version` prints a line for each component, and with --json one object."""
    lines = run("version").stdout.splitlines()
    assert lines[0] == f"agl-streams {version('agl-streams')}"
    assert json.loads(run("version", "--json").stdout)["agl-streams"] == version("agl-streams")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("aggregate", "--redis-url", "http://user:secret@host"), "redis_url='http://user:***@host'"),
        (("aggregate", "--namespace", "a b"), "namespace='a b'"),
        (("proxy",), "--upstream URL"),
        (("proxy", "--upstream", "nowhere"), "upstream='nowhere'"),
        (("proxy", "--upstream", "http://localhost:1", "--port", "70000"), "proxy_port='70000'"),
        (("worker", "no_agent"), "MODULE:AGENT"),
        (("worker", "module:agent", "--lease-seconds", "0"), "lease_seconds='0.0'"),
        (("bench", "core", "--namespace", ""), "namespace=''"),
        (("demo", "--namespace", "latest"), "namespace='latest'"),
        (("aggregate", "--redis-url", "redis://localhost:1"), "cannot reach redis://localhost:1"),
    ],
)
def test_an_error_is_one_clear_line(arguments: tuple[str, ...], told: str) -> None:
    """A mistake ends with exit code 2 and one line that names it, without a traceback and without passwords."""
    failed = run(*arguments)
    assert failed.returncode == 2
    assert failed.stdout == ""
    line = failed.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert told in line
    assert "Traceback" not in failed.stderr
    assert "secret" not in failed.stderr


@pytest.mark.parametrize(
    "arguments", [("worker",), ("aggregate", "--shard", "-1"), ("nonsense",), ("demo", "--runners", "0")]
)
def test_a_wrong_command_line_is_refused_with_usage(arguments: tuple[str, ...]) -> None:
    """Missing arguments, values out of range and unknown commands end with exit code 2 and the usage."""
    failed = run(*arguments)
    assert failed.returncode == 2
    assert "Usage:" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_found_by_its_entry_point(part: str) -> None:
    """The distribution registers each part, and what it registers can be called."""
    (found,) = entry_points(group=GROUP, name=part)
    assert callable(found.load())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_part_runs_on_the_embedded_engine_until_stopped(
    processes: ProcessGroup, tmp_path: Path, number: signal.Signals
) -> None:
    """Without a URL a command starts the engine of its data directory, and stops it when it is stopped itself."""
    part = processes.module("agl_streams.cli", "aggregate", "--data-dir", str(tmp_path / "data"), "--json")
    part.printed("aggregator_started")
    part.signal(number)
    assert part.wait() == 0
    events = [json.loads(line)["event"] for line in part.output.splitlines()]
    assert events[0] == "engine_started"
    assert events[-1] == "engine_stopped"


def test_a_second_command_joins_the_engine(processes: ProcessGroup, tmp_path: Path) -> None:
    """A command on a data directory whose engine runs joins it, and leaves it running."""
    arguments = ("agl_streams.cli", "aggregate", "--data-dir", str(tmp_path / "data"))
    first = processes.module(*arguments, name="first")
    first.printed("aggregator_started")
    second = processes.module(*arguments, name="second")
    second.printed("engine_joined")
    second.printed("aggregator_started")
    assert second.terminate() == 0
    assert "engine_stopped" not in second.output
    assert first.running
    assert first.terminate() == 0


def test_the_compose_file_uses_commands_that_exist() -> None:
    """Each container of ours runs a command of this program with flags that it knows."""
    text = (ROOT / "compose.yml").read_text()
    commands = [json.loads(line) for line in re.findall(r"^    command: (\[.*\])$", text, re.MULTILINE)]
    ours = {command[0]: command[1:] for command in commands if command[0] in COMMANDS}
    assert sorted(ours) == sorted(PARTS)
    for name, arguments in ours.items():
        shown = run(name, "--help").stdout
        assert [flag for flag in arguments if flag.startswith("--") and flag not in shown] == [], name
