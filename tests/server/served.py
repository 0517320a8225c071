"""The server as its users run it: a process of its own, with its children and its memory to look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agl_streams.config import Settings, child_environment
from tests.support.processes import Process, ProcessGroup


class Served:
    """A running ``agl-streams serve``."""

    def __init__(self, process: Process) -> None:
        self.process = process
        process.printed('"server_listening"')
        self.url = str(self.events("server_listening")[0]["url"])

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it has logged under a name."""
        lines = [json.loads(line) for line in self.process.output.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def children(self, name: str) -> list[int]:
        """Process ids of the children of a name, the newest last."""
        return [int(event["pid"]) for event in self.events("child_started") if event["name"] == name]


def serve(processes: ProcessGroup, settings: Settings, *flags: str) -> Served:
    """Start ``agl-streams serve`` with flags."""
    arguments = ("serve", "--port", "0", "--json", *flags)
    return Served(processes.module("agl_streams.cli", *arguments, env=child_environment(settings)))


def memory_of(pid: int, name: str = "VmRSS") -> int:
    """Bytes that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} has no {name}")
