"""Primaries of a cluster are killed under load, where every acknowledged write is on a replica as well."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from agl_streams.config import Settings
from agl_streams.errors import StoreUnavailable
from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.chaos import AHEAD, events_later
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.topologies import ClusterOfServers

KILLS = 2
EVENTS = 40  # of one shard between two kills


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Writes count once a replica has them."""
    return settings.model_copy(update={"min_replicas": 1})


@asynccontextmanager
async def load(store: StreamStore) -> AsyncGenerator[list[str]]:
    """Rollouts are enqueued until the end of the block, each again until it is acknowledged; the ids of these."""
    ids: list[str] = []
    stop = asyncio.Event()

    async def enqueue(rollout_id: str) -> None:
        while True:
            try:
                await store.enqueue_rollout({"ms": 10}, rollout_id=rollout_id)
            except StoreUnavailable:
                continue
            ids.append(rollout_id)
            return

    async def go_on() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            await enqueue(f"ro-{number}")
            await store.wait_for_rollouts(rollout_ids=ids[-AHEAD - 1 : -AHEAD])

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on())
        yield ids
        stop.set()


async def test_killed_primaries_lose_and_double_nothing(
    store: StreamStore, crew: Crew, settings: Settings, cluster: ClusterOfServers
) -> None:
    """Primaries are killed under load and come back: each acknowledged rollout ends once, with its spans."""
    crew.aggregator()
    crew.runner("some_work")
    crew.runner("some_work")
    async with load(store) as ids:
        for shard in range(KILLS):
            await events_later(store, EVENTS)
            primary = cluster.primary_of(settings.namespace, shard)
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(cluster.wait_until_replaced, primary)
            await asyncio.to_thread(primary.start)
        await asyncio.to_thread(cluster.wait_until_whole)
        await events_later(store, EVENTS)
    await wait_until_done(store, ids)
    assert [member.name for member in crew.members if not member.running] == []
    await check_invariants(store, ids, spans=SPANS)
