"""What the tests of whole demo runs share: small runs as processes, and every process that comes of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.processes import Process, ProcessGroup, is_alive
from tests.support.waiting import until_blocking

SEED = 7
BATCHES = 3
BATCH_SIZE = 8
RUNNERS = 2
PATIENCE_S = 90.0  # a demo starts seven processes that import a lot, on a machine that is busy with other tests


def start_endless(processes: ProcessGroup, directory: Path) -> Process:
    """A demo with one runner that would take minutes, in the middle of its work; its log events are JSON."""
    arguments = ["--batches", "1000", "--batch-size", str(BATCH_SIZE), "--runners", "1"]
    picture = ["--picture", str(directory / "curve.png")]
    # The folder of the demo is left behind when the demo is killed.
    env = {"AGL_LOG_LEVEL": "info", "AGL_LOG_FORMAT": "json", "TMPDIR": str(directory)}
    demo = processes.module("agl_streams.cli", "demo", *arguments, *picture, name="demo", env=env)
    demo.printed("batch 2/1000", timeout_s=PATIENCE_S)
    return demo


def pid_of(demo: Process, name: str) -> int:
    """The process id of a part of a running demo, from its log events."""
    (pid,) = [event["pid"] for event in events(demo) if event["event"] == "child_started" and event["name"] == name]
    return pid


def events(demo: Process) -> list[dict[str, Any]]:
    """The log events of a demo."""
    return [json.loads(line) for line in demo.output.splitlines() if line.startswith("{")]


def descendants(pid: int) -> list[int]:
    """Every process that comes of this one, however far down."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        found += (below := children.get(waiting.pop(), []))
        waiting += below
    return found


def _parents() -> list[tuple[int, int]]:
    """Each process of the machine with its parent."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return [(int(pid), int(parent)) for pid, parent in map(str.split, listing.splitlines())]
    found: list[tuple[int, int]] = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = (directory / "stat").read_text().rpartition(")")[2].split()[1]
            found.append((int(directory.name), int(parent)))
    return found


def all_gone(pids: Sequence[int]) -> None:
    """Wait until none of these processes is left."""
    until_blocking(lambda: not [pid for pid in pids if is_alive(pid)], what=f"the end of all of {pids}")


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that is none of the test's own."""
    os.kill(pid, number)
