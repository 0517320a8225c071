"""What a store does as a whole, with its shards on several nodes: it travels by pickle, and forgets who is gone."""

from __future__ import annotations

import asyncio
import pickle

from agl_streams.consumer import RolloutConsumer
from agl_streams.store import StreamStore
from tests.support.timeline import Timeline


async def test_a_pickled_store_finds_every_shard_of_a_cluster(store: StreamStore) -> None:
    """Its first calls come at once and go to all nodes; then it reads at each of them."""
    ids = [rollout.rollout_id for rollout in [await store.enqueue_rollout(number) for number in range(12)]]
    copy: StreamStore = pickle.loads(pickle.dumps(store))
    async with copy:
        found = await asyncio.gather(*(copy.get_rollout_by_id(rollout_id) for rollout_id in ids))
        assert [one and one.input for one in found] == list(range(12))
        consumer = RolloutConsumer(copy, "w")
        begun: list[str] = []
        while len(begun) < len(ids):
            begun += [one.rollout_id for one in await consumer.next(len(ids))]
        assert sorted(begun) == sorted(ids)
        waiting = asyncio.create_task(copy.wait_for_rollouts(rollout_ids=ids, timeout=60))
        for rollout_id in ids:
            await store.update_attempt(rollout_id, "latest", "succeeded")
        assert len(await waiting) == len(ids)
        await consumer.close()


async def test_a_worker_is_forgotten_by_every_node(store: StreamStore) -> None:
    """By each shard for itself, and by none while it is at work in another."""
    time = Timeline(store)
    await store.update_worker("w")
    busy = await store.start_rollout("x", worker_id="w")
    time.jumps(25 * 3600)
    assert [await store.retire_workers_once(shard) for shard in range(store.shards)] == [[]] * store.shards
    await store.update_attempt(busy.rollout_id, "latest", "succeeded")
    time.jumps(25 * 3600)
    assert [await store.retire_workers_once(shard) for shard in range(store.shards)] == [["w"]] * store.shards
    assert (await store.query_workers()).total == 0
