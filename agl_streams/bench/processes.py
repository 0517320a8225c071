"""Processor time of processes, as Linux tells it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path


def cpu_s(pids: Sequence[int]) -> float:
    """Processor time that processes have taken so far, in seconds; 0 where the system does not tell (Linux does)."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and those that it has started."""
    found = [pid]
    with contextlib.suppress(FileNotFoundError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += family(int(child))
    return found
