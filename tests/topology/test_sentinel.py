"""A primary that sentinels watch is killed: store, blocked reads and waits go on with the one that they promote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agl_streams import errors
from agl_streams.config import Settings, load_settings
from agl_streams.connection import RedisConnection
from agl_streams.consumer import RolloutConsumer
from agl_streams.store import StreamStore
from tests.support.servers import ALL_BINARIES, EMBEDDED, Servers, free_port
from tests.support.spans import reward
from tests.support.topologies import HOST, SentinelsAndServers, wait_until_acknowledged
from tests.support.waiting import until
from tests.topology.support import blocked, take_one


@pytest.fixture
def binary() -> str:
    """The server that a test uses unless it says otherwise."""
    return EMBEDDED


@pytest.fixture
def service(binary: str, servers: Servers) -> SentinelsAndServers:
    """A primary, a replica and three sentinels."""
    return SentinelsAndServers(servers, binary)


@pytest.fixture
def settings(service: SentinelsAndServers, tmp_path: Path) -> Settings:
    """Settings of a store on the service."""
    return load_settings(redis_url=service.url, namespace="t-sentinel", data_dir=tmp_path / "data")


@pytest.mark.parametrize("binary", ALL_BINARIES)
async def test_the_store_goes_on_after_a_failover(store: StreamStore, service: SentinelsAndServers) -> None:
    """The primary is killed while a runner and a learner block: work done before and after ends as it should."""
    first = service.primary
    before = await store.enqueue_rollout("before")
    consumer = RolloutConsumer(store, "w")
    taken = await take_one(consumer)
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[before.rollout_id], timeout=60))
    taking = asyncio.create_task(take_one(consumer))
    await until(lambda: blocked(first, 2), what="both reads to block")
    await asyncio.to_thread(wait_until_acknowledged, first)
    first.kill()
    span = reward(1, 1.0, rollout_id=before.rollout_id, attempt_id=taken.attempt.attempt_id)
    assert await store.add_span(span) is not None
    await store.update_attempt(before.rollout_id, taken.attempt.attempt_id, status="succeeded")
    assert [one.status for one in await waiting] == ["succeeded"]
    after = await store.enqueue_rollout("after")
    assert (await taking).rollout_id == after.rollout_id
    assert len(await store.query_spans(before.rollout_id)) == 1
    await consumer.close()


async def test_a_demoted_primary_is_not_read(
    store: StreamStore, service: SentinelsAndServers, settings: Settings
) -> None:
    """After a failover by hand the old primary answers reads as a replica, with the past; the store reads elsewhere."""
    first = service.primary
    rollout = await store.enqueue_rollout("before")
    await asyncio.to_thread(wait_until_acknowledged, first)
    service.sentinels[0].execute("SENTINEL", "FAILOVER", "primary")
    await asyncio.to_thread(service.wait_until_replaced, first)
    # As the sentinels do some seconds later; but from this port it hears nothing of the new one.
    first.execute("REPLICAOF", HOST, free_port())
    first.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    async with await StreamStore.connect(settings=settings) as other:
        await other.cancel_rollout(rollout.rollout_id, "for a test")
    found = await store.get_rollout_by_id(rollout.rollout_id)
    assert found is not None
    assert found.status == "cancelled"


async def test_sentinels_that_cannot_tell_are_named(servers: Servers) -> None:
    """A service that no sentinel watches, and a server that is no sentinel, are refused with what to do."""
    sentinel, server = servers.start(tcp=True, sentinel=True), servers.start(tcp=True)
    with pytest.raises(errors.ServerRefused, match="watches no service of the name 'other'"):
        await RedisConnection.open(f"redis+sentinel://{HOST}:{sentinel.port}/other")
    with pytest.raises(errors.ServerRefused, match="is no sentinel: give the server as redis://"):
        await RedisConnection.open(f"redis+sentinel://{HOST}:{server.port}/primary")
    with pytest.raises(errors.ServerRefused, match=r"runs in sentinel mode: give it as redis\+sentinel://"):
        await RedisConnection.open(sentinel.url)
