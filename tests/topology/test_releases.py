"""The whole way of a rollout on the oldest and the newest release that is supported, on one server."""

from __future__ import annotations

import pytest

from agl_streams.config import load_settings
from agl_streams.store import StreamStore
from tests.support.invariants import check_invariants
from tests.support.servers import ALL_BINARIES, Servers
from tests.topology.support import whole_way


@pytest.mark.parametrize("binary", ALL_BINARIES)
async def test_the_whole_way_on_each_release(servers: Servers, binary: str) -> None:
    """What runners, learners, the aggregator and the watchdog do works, and the projections are what the log says."""
    settings = load_settings(redis_url=servers.start(binary).url, namespace="t", shards=3)
    async with await StreamStore.connect(settings=settings) as store:
        await whole_way(store)
        await check_invariants(store, [one.rollout_id for one in await store.query_rollouts(limit=-1)])
