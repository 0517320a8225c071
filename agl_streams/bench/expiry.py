"""P8: what the watchdog costs the server when there is nothing to do."""

from __future__ import annotations

import statistics
from typing import Final

from agl_streams.bench.report import Row
from agl_streams.bench.scratch import command_stats, reset_stats, scratch_store
from agl_streams.bench.seeding import arm, running, seed
from agl_streams.bench.work import spread
from agl_streams.config import Settings
from agl_streams.store import StreamStore

ATTEMPTS: Final = 100_000
CALLS: Final = 500
WINDOWS: Final = 9  # a call that another process of the machine cut short spoils the mean of one of them
TASKS: Final = 16  # at once: one at a time, each call also pays for waking a core that had gone to sleep


async def expiry(settings: Settings, *, attempts: int = ATTEMPTS, calls: int = CALLS) -> list[Row]:
    """One row: the server's own time of an `expire` that finds nothing due."""
    async with scratch_store(settings) as store:
        await seed(store, attempts, running)
        await arm(store, attempts)
        await store.expire_once(0)  # nobody has watched before: this one gives grace, which is an event
        alone, together = [await _mean_us(store, tasks, calls) for tasks in (1, TASKS)]
        result = await store.expire_once(0)
    if result.ended or result.next_deadline_us is None:
        raise RuntimeError(f"the seeded attempts are not what was to be measured: {result}")
    what = f"server time of expire with {attempts:,} running attempts and nothing due, {TASKS} at once, µs"
    return [
        Row("P8", what, together, 20, "low", f"median of {WINDOWS} times {calls:,} calls; one at a time {alone:.1f}")
    ]


async def _mean_us(store: StreamStore, tasks: int, calls: int) -> float:
    """Microseconds of a call, the median of several means."""
    means: list[float] = []
    for _ in range(WINDOWS):
        await reset_stats(store)
        await spread(calls, tasks, lambda _: store.expire_once(0))
        spent = (await command_stats(store))["fcall"]
        means.append(spent.usec / spent.calls)
    return statistics.median(means)
