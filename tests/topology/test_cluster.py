"""A namespace of several shards on a real cluster: one store, whatever node a shard is on."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from agl_streams import errors
from agl_streams.config import Settings
from agl_streams.connection import RedisConnection
from agl_streams.consumer import RolloutConsumer
from agl_streams.models import AttemptedRollout, PromptTemplate
from agl_streams.store import StreamStore
from tests.support.servers import Servers
from tests.support.spans import reward
from tests.support.topologies import ClusterOfServers
from tests.support.waiting import until
from tests.topology.conftest import SHARDS
from tests.topology.support import blocked, id_in_shard, take_one

COUNT = 24


async def test_shards_on_several_nodes_are_one_store(store: StreamStore, cluster: ClusterOfServers) -> None:
    """Enqueue, dequeue, spans, reports, waits and queries work as on one server, whatever node a rollout is on."""
    resources = await store.add_resources({"main": PromptTemplate(template="x", engine="jinja")})
    ids = [(await store.enqueue_rollout({"n": number})).rollout_id for number in range(COUNT)]
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids, timeout=20))
    taken = await store.dequeue_many_rollouts(limit=COUNT, worker_id="w")
    assert sorted(one.rollout_id for one in taken) == sorted(ids)
    for one in taken:
        done = reward(1, 1.0, rollout_id=one.rollout_id, attempt_id=one.attempt.attempt_id)
        assert await store.add_span(done) is not None
        await store.update_attempt(one.rollout_id, one.attempt.attempt_id, status="succeeded")
    assert sorted(one.rollout_id for one in await waiting) == sorted(ids)
    page = await store.query_rollouts(status_in=["succeeded"], limit=-1)
    assert sorted(one.rollout_id for one in page) == sorted(ids)
    assert all(one.resources_id == resources.resources_id for one in page)
    assert [len(await store.query_spans(one)) for one in ids] == [1] * COUNT
    assert (await store.statistics())["total_spans"] == COUNT
    logs = [await store.connection.execute("XLEN", store.functions(shard).keys.log) for shard in range(SHARDS)]
    assert all(logs), "every shard was used, so every primary"


async def test_no_node_is_asked_for_the_keys_of_a_command(store: StreamStore, cluster: ClusterOfServers) -> None:
    """The client knows where a command goes: no COMMAND GETKEYS, and no reply MOVED while no slot moves."""
    cluster.forget_calls()
    consumer = RolloutConsumer(store, "w")
    await asyncio.gather(*(store.enqueue_rollout(number) for number in range(COUNT)))
    begun: list[AttemptedRollout] = []
    while len(begun) < COUNT:
        begun += await consumer.next(COUNT)
    await consumer.close()
    assert cluster.calls("fcall") > COUNT
    assert cluster.calls("xreadgroup") > 0
    assert cluster.calls("command|getkeys") == 0
    assert cluster.errors("MOVED") == 0


async def test_a_blocked_consumer_hears_of_every_shard(store: StreamStore) -> None:
    """A consumer that waits on all shards is handed a rollout as it is enqueued, on whatever node."""
    consumer = RolloutConsumer(store, "w")
    for number in range(COUNT):
        taking = asyncio.create_task(consumer.next(SHARDS))
        enqueued = await store.enqueue_rollout(number)
        assert [one.rollout_id for one in await taking] == [enqueued.rollout_id]
    await consumer.close()


async def test_a_shard_that_moves_is_followed(
    store: StreamStore, settings: Settings, cluster: ClusterOfServers
) -> None:
    """While a slot moves to another node in one step, work on its shard goes on, and a blocked read follows."""
    source = cluster.primary_of(settings.namespace)
    target = next(server for server in cluster.primaries() if server is not source)
    target.execute("FUNCTION", "FLUSH")
    consumer = RolloutConsumer(store, "w")
    taking = asyncio.create_task(take_one(consumer))
    await until(lambda: blocked(source, 1), what="the read to block")
    cluster.move_shard(settings.namespace, 0, target)
    assert cluster.primary_of(settings.namespace) is target
    enqueued = await store.enqueue_rollout("after", rollout_id=id_in_shard(store, 0))
    assert (await taking).rollout_id == enqueued.rollout_id
    await consumer.close()
    cluster.move_shard(settings.namespace, 0, source)


async def test_the_wrong_form_of_url_is_named(servers: Servers, cluster: ClusterOfServers) -> None:
    """A node given as a single server, or a single server given as a cluster, is refused with the right form."""
    node, single = cluster.servers[0], servers.start(tcp=True)
    with pytest.raises(errors.ServerRefused, match=r"runs in cluster mode: give it as redis\+cluster://"):
        await RedisConnection.open(node.url)
    with pytest.raises(errors.ServerRefused, match="this is no cluster; give the server as redis://"):
        await RedisConnection.open(single.url.replace("redis://", "redis+cluster://"))


async def test_each_primary_needs_its_replicas(settings: Settings, cluster: ClusterOfServers) -> None:
    """AGL_MIN_REPLICAS is checked on every primary: one without a replica is refused by its name."""
    demanding = settings.model_copy(update={"min_replicas": 1})
    await (await RedisConnection.open(cluster.url, settings=demanding)).close()
    lonely = cluster.primary_of(settings.namespace)
    cluster.replica_of(lonely).kill()
    await until(lambda: b"connected_slaves:0" in cast("bytes", lonely.execute("INFO", "replication")))
    with pytest.raises(errors.NotReplicated, match=rf":{lonely.port} has 0 replicas connected, and AGL_MIN_REPLICAS=1"):
        await RedisConnection.open(cluster.url, settings=demanding)
