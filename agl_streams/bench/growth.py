"""P4: each operation with a million finished rollouts in the server, against one that has hardly any."""

from __future__ import annotations

import random
import statistics
from functools import partial
from typing import Final

from agl_streams.bench.operations import OPERATIONS, RECENT, Operation, Side, side_of
from agl_streams.bench.report import US_PER_S, Row, paired, quantile, seconds_of
from agl_streams.bench.scratch import on_cores_of_their_own, reset_stats, scratch_store, server_us_of_functions
from agl_streams.bench.seeding import finished, seed, seeded_id
from agl_streams.config import Settings

CALLS: Final = 40  # per measurement: a median of so many calls is steady, and the two stores still take turns quickly
ASKED_FOR: Final = 10_000  # of the seeded rollouts, picked at random: no cache holds what lies between them
TARGET: Final = 1.2


async def growth(settings: Settings, *, rollouts: int, pairs: int, calls: int = CALLS) -> list[Row]:
    """A row for each operation: the ratio of its median times.

    Both servers have no append-only file, which makes every write quicker and so the ratio stricter.

    Args:
        rollouts: finished ones that are seeded into one of the two servers.
    """
    async with scratch_store(settings, durable=False) as small, scratch_store(settings, durable=False) as large:
        await seed(large, rollouts, finished)
        old = [seeded_id(random.randrange(rollouts)) for _ in range(min(rollouts, ASKED_FOR))]
        sides = await side_of(large, old), await side_of(small, ())
        async with on_cores_of_their_own(large, small):
            return [await _compared(operation, *sides, rollouts, pairs, calls) for operation in OPERATIONS]


async def _compared(operation: Operation, large: Side, small: Side, rollouts: int, pairs: int, calls: int) -> Row:
    for side in (large, small):
        await _p50_s(operation, side, calls)  # the first run does not count
        side.server_us.clear()
    ratio, *seconds = await paired(
        pairs, partial(_p50_s, operation, large, calls), partial(_p50_s, operation, small, calls)
    )
    here, there = (
        f"{taken * US_PER_S:,.0f} µs (functions {statistics.median(side.server_us):,.0f})"
        for taken, side in zip(seconds, (large, small), strict=True)
    )
    what = f"{operation.name}: p50 with {rollouts:,} finished rollouts, over that with {RECENT}"
    return Row("P4", what, ratio, TARGET, "low", f"{here} against {there}")


async def _p50_s(operation: Operation, side: Side, calls: int) -> float:
    given = [await operation.prepare(side) for _ in range(calls)]
    await reset_stats(side.store)
    times = [await seconds_of(partial(operation.run, side.store, one)) for one in given]
    side.server_us.append(await server_us_of_functions(side.store) / calls)
    return quantile(times, 0.5)
