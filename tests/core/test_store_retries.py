"""When a rollout is tried again, how often, and what becomes of one that is given up."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest

from agl_streams.models import AttemptStatus, RolloutConfig
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from tests.support.timeline import Timeline

Lost = Literal["failed", "timeout", "unresponsive"]
LOST: tuple[Lost, ...] = ("failed", "timeout", "unresponsive")


async def dead_letters(store: StreamStore) -> list[tuple[str, str]]:
    """Rollout and reason of those given up."""
    entries = await store.connection.execute("XRANGE", store.functions(0).keys.dead, "-", "+")
    return [(fields[1].decode(), fields[3].decode()) for _, fields in cast("Any", entries)]


@pytest.mark.parametrize("status", LOST)
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("max_attempts", [1, 2])
async def test_a_rollout_is_tried_again_when_the_end_is_listed_and_attempts_are_left(
    store: StreamStore, time: Timeline, status: Lost, listed: bool, max_attempts: int
) -> None:
    """Listed in `retry_condition` and below `max_attempts`: requeuing, without an end; otherwise failed, with one."""
    others: list[AttemptStatus] = [one for one in LOST if one != status]
    config = RolloutConfig(max_attempts=max_attempts, retry_condition=[status] if listed else others)
    await store.enqueue_rollout("x", config=config, rollout_id="r")
    first = await time.take()
    await store.update_attempt("r", first.attempt.attempt_id, status)
    rollout = await store.get_rollout_by_id("r")
    again = await store.dequeue_rollout()
    assert rollout is not None
    if listed and max_attempts == 2:
        assert (rollout.status, rollout.end_time) == ("requeuing", None)
        assert again is not None
        assert again.attempt.sequence_id == 2
    else:
        assert rollout.status == "failed"
        assert rollout.end_time is not None
        assert again is None


async def test_the_last_attempt_is_final(store: StreamStore, time: Timeline) -> None:
    """Attempts are counted from 1; after number `max_attempts` there is none."""
    config = RolloutConfig(max_attempts=3, retry_condition=["failed"])
    await store.enqueue_rollout("x", config=config, rollout_id="r")
    numbers: list[int] = []
    while (taken := await store.dequeue_rollout()) is not None:
        numbers.append(taken.attempt.sequence_id)
        await store.update_attempt("r", "latest", "failed")
    assert numbers == [1, 2, 3]


async def test_a_retried_rollout_is_on_the_queue_once(store: StreamStore, time: Timeline) -> None:
    """However its attempt ends, and however often that is reported, there is one entry, in its place."""
    config = RolloutConfig(max_attempts=5, retry_condition=list(LOST))
    await store.enqueue_rollout("x", config=config, rollout_id="retried")
    first = await time.take()
    for status in ("failed", "failed", "timeout", "unresponsive", "failed"):
        await store.update_attempt("retried", first.attempt.attempt_id, status)
        await store.enqueue_rollout("later")
    assert await store.connection.execute("XLEN", store.functions(0).keys.tasks) == 1 + 5
    assert (await time.take()).rollout_id == "retried"


async def test_a_retry_goes_to_the_end_of_the_queue(store: StreamStore, time: Timeline) -> None:
    """First in, first out by the time of queueing."""
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await store.enqueue_rollout("x", config=config, rollout_id="retried")
    await store.enqueue_rollout("y", rollout_id="other")
    await time.take()
    await store.update_attempt("retried", "latest", "failed")
    assert [(await time.take()).rollout_id for _ in range(2)] == ["other", "retried"]


async def test_a_lost_runner_uses_up_no_attempt(store: StreamStore, time: Timeline) -> None:
    """A lease that ran out is a fault of the infrastructure: with `max_attempts` 1 there is still another try."""
    await store.enqueue_rollout("x", config=RolloutConfig(max_attempts=1), rollout_id="r")
    await time.take(worker_id="w", lease_seconds=30.0)
    await time.passes(30.000001)
    attempt = await time.attempt("r")
    assert (attempt.status, attempt.end_time, attempt.metadata) == ("unresponsive", None, {REASON: "worker_lost"})
    assert (await time.rollout("r")).status == "requeuing"
    assert (await time.take()).attempt.sequence_id == 2


async def test_lost_runners_are_subtracted_from_the_attempts(store: StreamStore, time: Timeline) -> None:
    """After one lost attempt, number 3 is the second that counts."""
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await store.enqueue_rollout("x", config=config, rollout_id="r")
    await time.take(lease_seconds=30.0)
    await time.passes(31)
    for status in ("requeuing", "failed"):
        await time.take()
        await store.update_attempt("r", "latest", "failed")
        assert (await time.rollout("r")).status == status
    assert (await time.attempt("r")).sequence_id == 3


async def test_a_lost_attempt_that_came_back_counts(store: StreamStore, time: Timeline) -> None:
    """A runner that was thought lost and reports a failure has used up its attempt."""
    await store.enqueue_rollout("x", config=RolloutConfig(max_attempts=1, retry_condition=["failed"]), rollout_id="r")
    await time.take(lease_seconds=30.0)
    await time.passes(31)
    await store.update_attempt("r", "latest", "failed")
    assert await time.statuses("r") == ("failed", "failed")
    assert await store.dequeue_rollout() is None


async def test_a_rollout_that_loses_every_runner_is_given_up(store: StreamStore, time: Timeline) -> None:
    """After `max_deliveries` claims (3) it is failed and on the dead stream, with the reason; and finished once."""
    await store.enqueue_rollout("poison", rollout_id="r")
    for _ in range(3):
        assert await dead_letters(store) == []
        await time.take(lease_seconds=30.0)
        await time.passes(31)
    rollout = await time.rollout("r")
    assert (rollout.status, rollout.input) == ("failed", "poison")
    assert rollout.metadata == {REASON: "worker_lost"}
    assert await dead_letters(store) == [("r", "worker_lost")]
    assert await store.finished_counts() == {"r": 1}
    assert await store.dequeue_rollout() is None


async def test_a_retry_begins_a_new_count_of_deliveries(store: StreamStore, time: Timeline) -> None:
    """Deliveries are counted since the rollout was last queued on purpose."""
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    await store.enqueue_rollout("x", config=config, rollout_id="r")
    for _ in range(2):
        await time.take(lease_seconds=30.0)
        await time.passes(31)
    await time.take()
    await store.update_attempt("r", "latest", "failed")
    for _ in range(2):
        await time.take(lease_seconds=30.0)
        await time.passes(31)
        assert (await time.rollout("r")).status == "requeuing"


@pytest.mark.parametrize("again", ["queuing", "requeuing"])
async def test_one_that_was_given_up_can_be_queued_again(
    store: StreamStore, time: Timeline, again: Literal["queuing", "requeuing"]
) -> None:
    """An operator's update counts deliveries from the beginning, and takes end and reason away."""
    await store.enqueue_rollout("x", rollout_id="r")
    for _ in range(3):
        await time.take(lease_seconds=30.0)
        await time.passes(31)
    await store.update_rollout("r", status=again)
    rollout = await time.rollout("r")
    assert (rollout.status, rollout.end_time, rollout.metadata) == (again, None, {})
    await time.take(lease_seconds=30.0)
    await time.passes(31)
    assert (await time.rollout("r")).status == "requeuing"
