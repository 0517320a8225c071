"""Chapter 1: a rollout, which is one unit of work, is put on the queue, taken off it, tried, and finished."""

from __future__ import annotations

import pytest

from agl_streams import AttemptedRollout, InvalidRequest, StreamStore


async def test_a_new_rollout_waits_on_the_queue(store: StreamStore) -> None:
    """An enqueued rollout has an id, its input and the status queuing."""
    rollout = await store.enqueue_rollout({"question": "What is 2 + 2?"}, mode="train")

    assert rollout.rollout_id.startswith("ro-")
    assert rollout.input == {"question": "What is 2 + 2?"}
    assert rollout.status == "queuing"
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout


async def test_taking_a_rollout_opens_an_attempt(store: StreamStore) -> None:
    """A dequeue takes the rollout off the queue and opens its first attempt, in one step."""
    queued = await store.enqueue_rollout("task")

    taken = await store.dequeue_rollout(worker_id="worker-1")

    assert isinstance(taken, AttemptedRollout)
    assert (taken.rollout_id, taken.status) == (queued.rollout_id, "preparing")
    assert (taken.attempt.sequence_id, taken.attempt.status) == (1, "preparing")
    assert taken.attempt.worker_id == "worker-1"
    assert await store.dequeue_rollout() is None, "nothing else waits"


async def test_the_queue_is_first_in_first_out(store: StreamStore) -> None:
    """Rollouts are taken in the order in which they were put on the queue."""
    for task in ("first", "second", "third"):
        await store.enqueue_rollout(task)

    taken = await store.dequeue_many_rollouts(limit=3)

    assert [rollout.input for rollout in taken] == ["first", "second", "third"]


async def test_a_rollout_succeeds_with_its_attempt(store: StreamStore) -> None:
    """When the newest attempt is reported to have succeeded, the rollout has succeeded and has an end time."""
    await store.enqueue_rollout("task")
    taken = await store.dequeue_rollout()
    assert taken is not None

    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")

    finished = await store.get_rollout_by_id(taken.rollout_id)
    assert finished is not None
    assert finished.status == "succeeded"
    assert finished.end_time is not None


async def test_finished_means_finished(store: StreamStore) -> None:
    """A later report on the attempt is kept with the attempt and leaves the finished rollout as it is."""
    await store.enqueue_rollout("task")
    taken = await store.dequeue_rollout()
    assert taken is not None
    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")

    late = await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="failed")

    rollout = await store.get_rollout_by_id(taken.rollout_id)
    assert late.status == "failed"
    assert rollout is not None
    assert rollout.status == "succeeded"


async def test_an_enqueue_with_an_id_may_be_repeated(store: StreamStore) -> None:
    """A second enqueue with the caller's own id gives the first rollout back and queues nothing."""
    first = await store.enqueue_rollout("task", rollout_id="epoch-1.task-7")
    again = await store.enqueue_rollout("another task", rollout_id="epoch-1.task-7")

    assert again == first
    assert len(await store.dequeue_many_rollouts(limit=10)) == 1


async def test_a_rollout_is_found_by_its_status(store: StreamStore) -> None:
    """A query by status reads the index of that status, in order of creation."""
    first, second, third = [await store.enqueue_rollout(task) for task in ("a", "b", "c")]
    await store.dequeue_rollout()

    waiting = await store.query_rollouts(status_in=["queuing"])
    begun = await store.query_rollouts(status_in=["preparing"])

    assert [rollout.rollout_id for rollout in waiting] == [second.rollout_id, third.rollout_id]
    assert [rollout.rollout_id for rollout in begun] == [first.rollout_id]


async def test_bad_input_is_refused_before_anything_changes(store: StreamStore) -> None:
    """An input that JSON cannot hold raises an error that names the place, and nothing is queued."""
    with pytest.raises(InvalidRequest, match=r"input\['scores'\]\[1\] is nan"):
        await store.enqueue_rollout({"scores": [1.0, float("nan")]})

    assert len(await store.query_rollouts()) == 0


async def test_a_cancelled_rollout_is_finished_with_its_reason(store: StreamStore) -> None:
    """Cancelling takes a rollout off the queue and tells its owner why."""
    rollout = await store.enqueue_rollout("task")

    cancelled = await store.cancel_rollout(rollout.rollout_id, "the task was wrong")

    assert cancelled.status == "cancelled"
    assert cancelled.metadata == {"agl_streams.reason": "the task was wrong"}
    assert await store.dequeue_rollout() is None
