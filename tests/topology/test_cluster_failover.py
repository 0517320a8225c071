"""A primary of a cluster is killed or hangs: commands and blocked reads go on with the node that takes over."""

from __future__ import annotations

import asyncio

from agl_streams.config import Settings
from agl_streams.connection import RedisConnection
from agl_streams.consumer import RolloutConsumer
from agl_streams.functions import ShardFunctions
from agl_streams.keys import ShardKeys
from agl_streams.store import StreamStore
from tests.support.topologies import HOST, ClusterOfServers
from tests.support.waiting import until
from tests.topology.conftest import SHARDS
from tests.topology.support import blocked, id_in_shard, take_one


async def test_functions_alone_recover_from_the_loss_of_the_first_node(
    settings: Settings, cluster: ClusterOfServers
) -> None:
    """The only node that the URL names is killed; a client that calls nothing but functions goes on with the others."""
    first = cluster.primary_of(settings.namespace)
    connection = await RedisConnection.open(f"redis+cluster://{HOST}:{first.port}")
    shards = [ShardFunctions(connection, ShardKeys(settings.namespace, shard), SHARDS) for shard in range(SHARDS)]
    for functions in shards:
        await functions.load()
    first.kill()
    heartbeats = [functions.heartbeat("w", b"", "") for functions in shards]
    assert len(await asyncio.gather(*heartbeats)) == SHARDS
    assert cluster.primary_of(settings.namespace) is not first
    await connection.close()


async def test_blocked_reads_follow_a_failover(
    store: StreamStore, settings: Settings, cluster: ClusterOfServers
) -> None:
    """A consumer and a wait that block on a node which is killed hear of what happens at its successor."""
    first = cluster.primary_of(settings.namespace)
    rollout_id = id_in_shard(store, 0)
    await store.enqueue_rollout("before", rollout_id=rollout_id)
    consumer = RolloutConsumer(store, "w")
    (taken,) = await consumer.next(1)
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[rollout_id], timeout=60))
    taking = asyncio.create_task(take_one(consumer))
    await until(lambda: blocked(first, 2), what="both reads to block")
    first.kill()
    await store.update_attempt(rollout_id, taken.attempt.attempt_id, status="succeeded")
    assert [one.status for one in await waiting] == ["succeeded"]
    later = await store.enqueue_rollout("after", rollout_id=id_in_shard(store, 0, "later"))
    assert (await taking).rollout_id == later.rollout_id
    await consumer.close()


async def test_a_hanging_primary_is_left(settings: Settings, cluster: ClusterOfServers) -> None:
    """A primary that hangs is replaced; reads that block there are cut as soon as a command has found the new one."""
    store = await StreamStore.connect(f"{cluster.url}?socket_timeout=0.5", settings=settings)
    first = cluster.primary_of(settings.namespace)
    consumer = RolloutConsumer(store, "w")
    taking = asyncio.create_task(take_one(consumer))
    await until(lambda: blocked(first, 1), what="the read to block")
    first.pause()
    try:
        enqueued = await store.enqueue_rollout("after", rollout_id=id_in_shard(store, 0))
        assert (await taking).rollout_id == enqueued.rollout_id
    finally:
        first.resume()
    await consumer.close()
    await store.close()
