"""``bench store``: what the store promises of speed and size, each on a server that it has for itself."""

from __future__ import annotations

import asyncio

from agl_streams.bench.core import batched, handover, single
from agl_streams.bench.expiry import expiry
from agl_streams.bench.growth import growth
from agl_streams.bench.memory import memory
from agl_streams.bench.report import Row, show
from agl_streams.bench.runners import runners
from agl_streams.bench.scratch import quiet, scratch_store
from agl_streams.bench.waiters import waiting
from agl_streams.config import Settings


def main(settings: Settings, *, rollouts: int, pairs: int = 5, json_output: bool = False) -> int:
    """Run the benchmark on embedded servers of its own; 0 when every target is met.

    Args:
        rollouts: finished ones that are seeded to see what grows; some 80 µs and 1.1 KB of memory each.
    """
    rows = asyncio.run(measure(quiet(settings), rollouts, pairs))
    return show("agl-streams bench store", rows, json_output=json_output)


async def measure(settings: Settings, rollouts: int, pairs: int) -> list[Row]:
    """All rows, in the order of their numbers."""
    async with scratch_store(settings) as store:
        written = [*await single(store, pairs), *await batched(store, pairs)]
        handed_over = await handover(store)
    return [
        *written,
        *await growth(settings, rollouts=rollouts, pairs=pairs),
        *await memory(settings),
        *await waiting(settings),
        *handed_over,
        *await expiry(settings),
        *await runners(settings),
    ]
