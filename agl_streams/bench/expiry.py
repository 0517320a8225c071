"""P8: what the watchdog costs the server when there is nothing to do."""

from __future__ import annotations

import statistics
from typing import Final

from agl_streams.bench.report import Row
from agl_streams.bench.scratch import command_stats, reset_stats, scratch_store
from agl_streams.bench.seeding import arm, running, seed
from agl_streams.config import Settings

ATTEMPTS: Final = 100_000
CALLS: Final = 500
WINDOWS: Final = 9  # a call that another process of the machine cut short spoils the mean of one of them


async def expiry(settings: Settings, *, attempts: int = ATTEMPTS, calls: int = CALLS) -> list[Row]:
    """One row: the server's own time of an `expire` that finds nothing due."""
    async with scratch_store(settings) as store:
        await seed(store, attempts, running)
        await arm(store, attempts)
        result = await store.expire_once(0)  # nobody has watched before: this one gives grace, which is an event
        means: list[float] = []
        for _ in range(WINDOWS):
            await reset_stats(store)
            for _ in range(calls):
                result = await store.expire_once(0)
            spent = (await command_stats(store))["fcall"]
            means.append(spent.usec / spent.calls)
    if result.ended or result.next_deadline_us is None:
        raise RuntimeError(f"the seeded attempts are not what was to be measured: {result}")
    what = f"server time of expire with {attempts:,} running attempts and nothing due, µs"
    detail = f"means of {WINDOWS} times {calls:,} calls: {min(means):.1f} to {max(means):.1f}"
    return [Row("P8", what, statistics.median(means), 20, "low", detail)]
