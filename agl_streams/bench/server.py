"""``bench server``: our HTTP server by itself: its routes, and what a second process adds."""

from __future__ import annotations

import asyncio

from agl_streams.bench.report import Row, show
from agl_streams.bench.routes import routes
from agl_streams.bench.scratch import quiet, scratch_store
from agl_streams.bench.served import serving
from agl_streams.bench.wrk import two_over_one
from agl_streams.config import Settings


def main(settings: Settings, *, pairs: int = 5, json_output: bool = False) -> int:
    """Run the benchmark on an embedded server of its own; 0 when every target is met."""
    rows = asyncio.run(measure(quiet(settings), pairs))
    return show("agl-streams bench server", rows, json_output=json_output)


async def measure(settings: Settings, pairs: int) -> list[Row]:
    """All rows."""
    async with scratch_store(settings) as store:
        async with serving(store, 1) as served:
            rows = await routes(served)
        return [*rows, *await two_over_one(store, pairs=pairs)]
