"""Chapter 6: everything that happened is an event in a log; state is what follows from the events, in order."""

from __future__ import annotations

from typing import Any

import pytest

from agl_streams import AttemptedRollout, Gap, Settings, StreamStore
from agl_streams.events import TYPES
from agl_streams.fold import fold
from agl_streams.projections import RolloutSums
from agl_streams.replay import rebuild
from tests.story.conftest import ReadLog
from tests.support.spans import model_call, reward


async def one_life(store: StreamStore) -> AttemptedRollout:
    """A rollout from the queue to its end, with a model call and a reward."""
    await store.enqueue_rollout({"question": "What is 2 + 2?"})
    taken = await store.dequeue_rollout("worker-1")
    assert taken is not None
    ids: dict[str, Any] = {"rollout_id": taken.rollout_id, "attempt_id": taken.attempt.attempt_id}
    await store.add_many_spans([model_call(0, **ids), reward(0, 1.0, **ids)], assign_sequence=True)
    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
    return taken


async def test_each_step_is_an_event(store: StreamStore, read_log: ReadLog) -> None:
    """The log of a rollout names what happened, in order, without gaps and never back in time."""
    await one_life(store)

    log = await read_log()

    assert [event.type for event in log] == [
        "rollout_enqueued",
        "attempt_started",
        "attempt_running",
        "spans",
        "attempt_ended",
    ]
    assert [event.n for event in log] == [1, 2, 3, 4, 5]
    assert sorted(event.time_us for event in log) == [event.time_us for event in log]
    assert all(set(event.fields) <= set(TYPES[event.type].fields) for event in log)


async def test_an_event_carries_the_decision(store: StreamStore, read_log: ReadLog) -> None:
    """An event says what its rollout becomes, so that nobody has to decide again when reading it later."""
    taken = await one_life(store)

    ended = (await read_log())[-1]

    assert ended.fields == {
        "rollout": taken.rollout_id,
        "attempt": taken.attempt.attempt_id,
        "status": "succeeded",
        "to": "succeeded",
    }


async def test_what_changes_nothing_is_no_event(store: StreamStore, read_log: ReadLog) -> None:
    """Repeating a report leaves no trace, so that a client may send it again when an answer was lost."""
    taken = await one_life(store)
    before = await read_log()

    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")

    assert await read_log() == before


async def test_the_sums_follow_the_log(store: StreamStore) -> None:
    """Statuses hold at once; sums over spans are folded by the aggregator, and settle folds up to this moment."""
    taken = await one_life(store)
    assert await store.rollout_sums(taken.rollout_id) == RolloutSums(), "no aggregator has run yet"

    await store.settle()

    sums = await store.rollout_sums(taken.rollout_id)
    assert (sums.spans, sums.model_calls, sums.prompt_tokens, sums.completion_tokens) == (2, 1, 1, 1)
    assert (sums.rewards, sums.reward, sums.incomplete) == (1, 1.0, 0)


async def test_an_event_is_folded_once(store: StreamStore, settings: Settings) -> None:
    """Reading an event and adding its sums are one step, so that any number of aggregators count it once."""
    taken = await one_life(store)
    async with await StreamStore.connect(settings=settings) as other:
        for aggregator in (store, other, store, other):
            await aggregator.fold_once(shard=0)

    assert (await store.rollout_sums(taken.rollout_id)).spans == 2


async def test_a_log_with_a_hole_is_not_folded(store: StreamStore, read_log: ReadLog) -> None:
    """When an event is missing the fold stops with an error instead of giving wrong sums."""
    await one_life(store)
    lost = (await read_log())[1]
    await store.connection.execute("XDEL", store.functions(0).keys.log, lost.id)

    with pytest.raises(Gap):
        await store.settle()


async def test_the_log_is_the_state(store: StreamStore, settings: Settings) -> None:
    """The same events written to an empty namespace give the same rollouts, attempts, spans and sums."""
    taken = await one_life(store)
    await store.enqueue_rollout("still waiting")
    await store.settle()

    async with await StreamStore.connect(settings=settings, namespace=f"{settings.namespace}-again") as again:
        await rebuild(store, again)

        assert await again.query_rollouts() == await store.query_rollouts()
        assert await again.query_attempts(taken.rollout_id) == await store.query_attempts(taken.rollout_id)
        assert await again.query_spans(taken.rollout_id) == await store.query_spans(taken.rollout_id)
        assert await again.rollout_sums(taken.rollout_id) == await store.rollout_sums(taken.rollout_id)
        waiting = await again.dequeue_rollout()
        assert waiting is not None
        assert waiting.input == "still waiting"


async def test_any_moment_of_the_past_can_be_shown(store: StreamStore, read_log: ReadLog) -> None:
    """Folding the log up to an event gives the state after that event."""
    taken = await one_life(store)

    log = await read_log()

    statuses = [fold(log[: event.n]).rollouts[taken.rollout_id]["status"] for event in log]
    assert statuses == ["queuing", "preparing", "running", "running", "succeeded"]
