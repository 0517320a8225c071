"""Time: the only module that reads a clock or lets a task rest.

Event times in the store come from the server's clock; what is read here serves local timing, span times made on this
machine and deadlines of this process. With one owner a test that needs another time has one place to patch.
"""

from __future__ import annotations

import asyncio
import time

_NS_PER_US = 1_000


def now_s() -> float:
    """Wall clock, seconds since the Unix epoch."""
    return time.time()


def now_us() -> int:
    """Wall clock, whole microseconds since the Unix epoch (the unit of the event log)."""
    return time.time_ns() // _NS_PER_US


def monotonic_s() -> float:
    """A clock that never steps back, in seconds from an arbitrary start: for durations and deadlines.

    Its resolution is well below a microsecond, so it serves the benchmarks too.
    """
    return time.perf_counter()


async def sleep_s(seconds: float) -> None:
    """Let the current task rest for ``seconds`` (a negative number only yields once).

    Work is never found by resting and looking again; this is for back-off and for pacing.
    """
    await asyncio.sleep(seconds)


def block_s(seconds: float) -> None:
    """Block the current thread for ``seconds``: for code without an event loop, such as the engine's start."""
    time.sleep(max(seconds, 0.0))
