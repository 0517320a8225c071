"""Steps that the tests of clusters and sentinels share."""

from __future__ import annotations

import asyncio
import itertools
from typing import cast

from agl_streams.consumer import RolloutConsumer
from agl_streams.keys import shard_of
from agl_streams.models import AttemptedRollout, PromptTemplate
from agl_streams.store import StreamStore
from tests.support.servers import Server
from tests.support.spans import reward
from tests.support.waiting import turns


def id_in_shard(store: StreamStore, shard: int, prefix: str = "ro") -> str:
    """A rollout id that lives in a shard."""
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if shard_of(name, store.shards) == shard)


def blocked(server: Server, count: int) -> bool:
    """Whether so many clients block at a server."""
    return f"blocked_clients:{count}\r\n".encode() in cast("bytes", server.execute("INFO", "clients"))


async def take_one(consumer: RolloutConsumer) -> AttemptedRollout:
    """Ask until there is a rollout, as a runner does."""
    while not (taken := await consumer.next(1)):
        pass
    return taken[0]


async def whole_way(store: StreamStore) -> None:
    """Everything that runners, a learner, the aggregator and the watchdog do, once."""
    await store.add_resources({"main": PromptTemplate(template="x", engine="jinja")})
    enqueued = await store.enqueue_rollout("first")
    consumer = RolloutConsumer(store, "w")
    taken = await take_one(consumer)
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id], timeout=60))
    await store.update_worker("w", {"busy": True})
    await store.add_span(reward(1, 1.0, rollout_id=taken.rollout_id, attempt_id=taken.attempt.attempt_id))
    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
    assert [one.status for one in await waiting] == ["succeeded"]
    for shard in range(store.shards):
        await store.expire_once(shard)
    taking = asyncio.create_task(consumer.next(store.shards))
    await turns(5)
    await consumer.stop()
    assert await taking == []
    await consumer.close()
    cancelled = await store.cancel_rollout((await store.enqueue_rollout("second")).rollout_id, "for a test")
    assert [one.rollout_id for one in await store.query_rollouts(status_in=["cancelled"])] == [cancelled.rollout_id]
    assert len(await store.query_attempts(enqueued.rollout_id)) == 1
    assert len(await store.query_spans(enqueued.rollout_id)) == 1
    assert [one.worker_id for one in await store.query_workers()] == ["w"]
    assert (await store.statistics())["total_spans"] == 1
