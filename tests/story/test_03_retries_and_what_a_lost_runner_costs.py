"""Chapter 3: a failed attempt is retried if its rollout says so; a lost runner costs a delay and no attempt."""

from __future__ import annotations

import pytest

from agl_streams import AttemptedRollout, AttemptEnded, RolloutConfig, Span, StreamStore, Superseded
from tests.story.conftest import ServerTime

LEASE_S = 30.0


async def take(store: StreamStore, worker_id: str = "worker-1") -> AttemptedRollout:
    """Take the next rollout, with a lease, as a runner does."""
    taken = await store.dequeue_rollout(worker_id, lease_seconds=LEASE_S)
    assert taken is not None
    return taken


async def status_of(store: StreamStore, rollout_id: str) -> str:
    """The status of a rollout now."""
    rollout = await store.get_rollout_by_id(rollout_id)
    assert rollout is not None
    return rollout.status


def sign_of_life(taken: AttemptedRollout) -> Span:
    """A span of the attempt."""
    return Span.from_attributes(
        name="still here", attributes={}, rollout_id=taken.rollout_id, attempt_id=taken.attempt.attempt_id
    )


async def test_a_failed_attempt_fails_its_rollout(store: StreamStore) -> None:
    """Without a retry rule there is one attempt."""
    await store.enqueue_rollout("task")
    taken = await take(store)

    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="failed")

    assert await status_of(store, taken.rollout_id) == "failed"


async def test_a_retry_is_another_attempt(store: StreamStore) -> None:
    """With a retry rule the failed rollout goes to the end of the queue, until its attempts are used up."""
    await store.enqueue_rollout("task", config=RolloutConfig(max_attempts=2, retry_condition=["failed"]))
    first = await take(store)
    await store.update_attempt(first.rollout_id, first.attempt.attempt_id, status="failed")
    assert await status_of(store, first.rollout_id) == "requeuing"

    second = await take(store)
    assert (second.rollout_id, second.attempt.sequence_id) == (first.rollout_id, 2)
    await store.update_attempt(second.rollout_id, second.attempt.attempt_id, status="failed")

    assert await status_of(store, first.rollout_id) == "failed"
    assert [attempt.status for attempt in await store.query_attempts(first.rollout_id)] == ["failed", "failed"]


async def test_an_attempt_that_takes_too_long_is_timed_out(store: StreamStore, server_time: ServerTime) -> None:
    """The rollout's timeout counts from the attempt's start, and a living runner does not stop it."""
    await store.enqueue_rollout("task", config=RolloutConfig(timeout_seconds=60.0))
    taken = await take(store)
    for _ in range(4):
        await server_time.passes(20.0)
        await store.renew_attempt(taken.rollout_id, taken.attempt.attempt_id)

    attempt = await store.get_latest_attempt(taken.rollout_id)
    assert attempt is not None
    assert attempt.status == "timeout"
    assert await status_of(store, taken.rollout_id) == "failed"


async def test_a_living_runner_keeps_its_attempt(store: StreamStore, server_time: ServerTime) -> None:
    """A lease that is renewed never runs out, however long the work takes."""
    await store.enqueue_rollout("task")
    taken = await take(store)

    for _ in range(10):
        await server_time.passes(LEASE_S * 0.8)
        assert await store.renew_attempt(taken.rollout_id, taken.attempt.attempt_id) == "renewed"

    assert await status_of(store, taken.rollout_id) == "preparing"


async def test_a_lost_runner_costs_no_attempt(store: StreamStore, server_time: ServerTime) -> None:
    """When a lease runs out the rollout is queued again, although it may have one attempt only."""
    await store.enqueue_rollout("task", config=RolloutConfig(max_attempts=1))
    lost = await take(store, "worker-that-dies")

    await server_time.passes(LEASE_S + 1.0)

    attempt = await store.get_latest_attempt(lost.rollout_id)
    assert attempt is not None
    assert (attempt.status, attempt.metadata) == ("unresponsive", {"agl_streams.reason": "worker_lost"})
    assert await status_of(store, lost.rollout_id) == "requeuing"
    again = await take(store, "worker-2")
    await store.update_attempt(again.rollout_id, again.attempt.attempt_id, status="succeeded")
    assert await status_of(store, lost.rollout_id) == "succeeded"


async def test_a_runner_that_comes_back_in_time_goes_on(store: StreamStore, server_time: ServerTime) -> None:
    """A lost attempt that shows life before another begins takes its rollout back off the queue."""
    await store.enqueue_rollout("task")
    taken = await take(store)
    await server_time.passes(LEASE_S + 1.0)
    assert await status_of(store, taken.rollout_id) == "requeuing"

    await store.add_span(sign_of_life(taken), assign_sequence=True)

    assert await status_of(store, taken.rollout_id) == "running"
    assert await store.dequeue_rollout() is None


async def test_a_runner_that_comes_back_too_late_is_fenced_off(store: StreamStore, server_time: ServerTime) -> None:
    """Once a newer attempt has begun, the old one gets no model call and its report does not move the rollout."""
    await store.enqueue_rollout("task")
    old = await take(store, "worker-1")
    await server_time.passes(LEASE_S + 1.0)
    new = await take(store, "worker-2")

    assert await store.renew_attempt(old.rollout_id, old.attempt.attempt_id) == "superseded"
    with pytest.raises(Superseded):
        await store.admit_call(old.rollout_id, old.attempt.attempt_id)
    await store.update_attempt(old.rollout_id, old.attempt.attempt_id, status="succeeded")
    assert await status_of(store, old.rollout_id) == "preparing"

    await store.update_attempt(new.rollout_id, new.attempt.attempt_id, status="failed")
    assert await status_of(store, old.rollout_id) == "failed"


async def test_a_rollout_that_loses_every_runner_is_given_up(store: StreamStore, server_time: ServerTime) -> None:
    """After max_deliveries lost runners the rollout fails, so that a task that kills runners has an end."""
    rollout = await store.enqueue_rollout("poison")
    for worker in range(store.settings.max_deliveries):
        await take(store, f"worker-{worker}")
        await server_time.passes(LEASE_S + 1.0)

    given_up = await store.get_rollout_by_id(rollout.rollout_id)
    assert given_up is not None
    assert (given_up.status, given_up.metadata) == ("failed", {"agl_streams.reason": "worker_lost"})
    assert await store.connection.execute("XLEN", store.functions(0).keys.dead) == 1


async def test_the_agent_of_a_cancelled_rollout_is_stopped(store: StreamStore) -> None:
    """Cancelling fails the open attempt with the reason, and its next model call is refused."""
    await store.enqueue_rollout("task")
    taken = await take(store)

    await store.cancel_rollout(taken.rollout_id, "the policy has moved on")

    attempt = await store.get_latest_attempt(taken.rollout_id)
    assert attempt is not None
    assert (attempt.status, attempt.metadata) == ("failed", {"agl_streams.reason": "the policy has moved on"})
    with pytest.raises(AttemptEnded):
        await store.admit_call(taken.rollout_id, taken.attempt.attempt_id)
