"""The server is restarted again and again under load: its clients wait for it, none ends, and the counts match."""

from __future__ import annotations

import asyncio
import random

from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.chaos import events_later, steady_load
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.servers import Server

RESTARTS = 20


async def test_twenty_restarts_under_load(store: StreamStore, crew: Crew, server: Server) -> None:
    """Twenty restarts, by SIGTERM or kill -9, some while the last is hardly over: nothing is lost or doubled."""
    crew.aggregator()
    crew.runner("some_work")
    crew.runner("some_work")
    async with steady_load(store) as ids:
        for number in range(RESTARTS):
            await events_later(store, random.randrange(1, 40))
            await asyncio.to_thread(server.stop if number % 2 else server.kill)
            await asyncio.to_thread(server.start)
    await wait_until_done(store, ids)
    assert [member.name for member in crew.members if not member.running] == []
    assert await store.finished_counts() == dict.fromkeys(ids, 1)
    statistics = await store.statistics()
    assert statistics["total_rollouts"] == len(ids)
    assert statistics["total_spans"] >= len(ids) * SPANS
    await check_invariants(store, ids, spans=SPANS)
