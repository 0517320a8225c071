"""What a runner was handed is worked on, given back or asked for again, whatever happens to the answers."""

from __future__ import annotations

from typing import Any

import pytest

from agl_streams import StreamStore, rollout
from agl_streams.config import Settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.errors import StoreUnavailable
from agl_streams.functions import ShardFunctions
from agl_streams.keys import shard_of
from agl_workers.runner import Runner
from tests.workers.support import WORKER, attempts_of, get, running


def lose_answers(monkeypatch: pytest.MonkeyPatch, functions: ShardFunctions, count: int) -> None:
    """Let the answers of the next calls of `begin` be lost after the server has carried them out."""
    begin, left = functions.begin, [count]

    async def carried_out_unheard(*args: Any) -> Any:
        views = await begin(*args)
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable("the connection was lost")
        return views

    monkeypatch.setattr(functions, "begin", carried_out_unheard)


async def test_a_begin_whose_answer_was_lost_is_asked_for_again(
    store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that the server opened unheard is handed out by the next call, and not opened twice."""
    enqueued = await store.enqueue_rollout("task")
    consumer = RolloutConsumer(store, WORKER)
    lose_answers(monkeypatch, store.functions(0), 2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await consumer.next(1)
    (taken,) = await consumer.next(1)
    assert taken.rollout_id == enqueued.rollout_id
    assert [attempt.attempt_id for attempt in await attempts_of(store, enqueued.rollout_id)] == [
        taken.attempt.attempt_id
    ]
    await consumer.close()


async def test_a_shard_that_fails_does_not_take_the_others_with_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When one shard gives no answer, what was begun in the others is handed out, and the failed one is asked again."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"shards": 2})) as store:
        enqueued = [await store.enqueue_rollout(number) for number in range(20)]
        consumer = RolloutConsumer(store, WORKER)
        lose_answers(monkeypatch, store.functions(1), 1)
        taken: list[str] = []
        while len(taken) < len(enqueued):
            try:
                taken += [rollout.rollout_id for rollout in await consumer.next(6)]
            except StoreUnavailable:
                continue
        assert sorted(taken) == sorted(one.rollout_id for one in enqueued)
        assert {(await get(store, one.rollout_id)).status for one in enqueued} == {"preparing"}
        assert [len(await attempts_of(store, one.rollout_id)) for one in enqueued] == [1] * len(enqueued)
        await consumer.close()


async def test_one_place_serves_all_shards(settings: Settings) -> None:
    """A runner with fewer places than shards does the work of every shard."""

    @rollout
    async def quick(task: int) -> float:
        return float(task)

    async with await StreamStore.connect(settings=settings.model_copy(update={"shards": 3})) as store:
        enqueued = [await store.enqueue_rollout(number) for number in range(12)]
        ids = [one.rollout_id for one in enqueued]
        assert {shard_of(rollout_id, 3) for rollout_id in ids} == {0, 1, 2}
        async with running(Runner(store, quick, worker_id=WORKER).run):
            done = await store.wait_for_rollouts(rollout_ids=ids)
    assert [one.status for one in done] == ["succeeded"] * len(ids)
