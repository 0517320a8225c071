"""What runners and operators may say of attempts and rollouts, and what follows from it."""

from __future__ import annotations

import asyncio
from typing import Literal, get_args

import pytest

from agl_streams.config import Settings
from agl_streams.errors import AttemptEnded, InvalidRequest, NotFound, Superseded
from agl_streams.models import AttemptedRollout, AttemptStatus, RolloutConfig, RolloutStatus, Span
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from tests.support.spans import reward
from tests.support.timeline import Timeline

Finished = Literal["succeeded", "failed", "cancelled"]
ATTEMPT_STATUSES: tuple[AttemptStatus, ...] = get_args(AttemptStatus)
FINISHED: tuple[Finished, ...] = get_args(Finished)
RETRY = RolloutConfig(max_attempts=3, retry_condition=["failed", "timeout", "unresponsive"])


def a_span(attempted: AttemptedRollout) -> Span:
    """A new span of an attempt."""
    return reward(1, 0.5, rollout_id=attempted.rollout_id, attempt_id=attempted.attempt.attempt_id)


async def begin(time: Timeline, *, config: RolloutConfig | None = None, lease: float | None = None) -> AttemptedRollout:
    """Rollout ``r`` with an attempt that has just begun."""
    await time.store.enqueue_rollout("x", config=config, rollout_id="r")
    return await time.take(worker_id="w", lease_seconds=lease)


@pytest.mark.parametrize("status", ATTEMPT_STATUSES)
async def test_any_status_is_recorded_on_an_attempt(store: StreamStore, time: Timeline, status: AttemptStatus) -> None:
    """Also on one that had ended; an end is dated with succeeded, failed and timeout, and with no other."""
    attempted = await begin(time)
    await store.update_attempt("r", attempted.attempt.attempt_id, "succeeded")
    time.jumps(5)
    attempt = await store.update_attempt("r", attempted.attempt.attempt_id, status)
    assert attempt.status == status
    ends = {"succeeded": time.now - 5, "failed": time.now, "timeout": time.now}
    assert attempt.end_time == ends.get(status)


@pytest.mark.parametrize("status", ["preparing", "running", "succeeded"])
async def test_the_rollout_follows_an_attempt_that_goes_well(
    store: StreamStore, time: Timeline, status: Literal["preparing", "running", "succeeded"]
) -> None:
    """The rollout takes the same status; succeeded gives it an end."""
    attempted = await begin(time)
    await store.update_attempt("r", attempted.attempt.attempt_id, "running")
    await store.update_attempt("r", attempted.attempt.attempt_id, status)
    rollout = await time.rollout("r")
    assert rollout.status == status
    assert rollout.end_time == (time.now if status == "succeeded" else None)


@pytest.mark.parametrize("status", ["succeeded", "failed"])
@pytest.mark.parametrize("before", ["timeout", "unresponsive"])
async def test_a_runner_that_was_given_up_may_still_report(
    store: StreamStore, time: Timeline, before: AttemptStatus, status: Literal["succeeded", "failed"]
) -> None:
    """While nobody has taken the retry, the newest attempt's report decides, and the entry is taken back."""
    attempted = await begin(time, config=RolloutConfig(max_attempts=2, retry_condition=["timeout", "unresponsive"]))
    await store.update_attempt("r", attempted.attempt.attempt_id, before)
    assert (await time.rollout("r")).status == "requeuing"
    await store.update_attempt("r", attempted.attempt.attempt_id, status)
    assert await time.statuses("r") == (status, status)
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("status", ATTEMPT_STATUSES)
async def test_a_late_report_changes_only_its_attempt(
    store: StreamStore, time: Timeline, status: AttemptStatus
) -> None:
    """Once the retry has begun, the old attempt no longer matters."""
    first = await begin(time, config=RETRY)
    await store.update_attempt("r", first.attempt.attempt_id, "unresponsive")
    second = await time.take()
    await store.update_attempt("r", first.attempt.attempt_id, status)
    assert await time.statuses("r") == ("preparing", "preparing")
    assert [one.status for one in await store.query_attempts("r")] == [status, "preparing"]
    await store.update_attempt("r", second.attempt.attempt_id, "succeeded")
    assert await store.finished_counts() == {"r": 1}


@pytest.mark.parametrize("status", ATTEMPT_STATUSES)
@pytest.mark.parametrize("finished", FINISHED)
async def test_finished_is_finished(
    store: StreamStore, time: Timeline, finished: Finished, status: AttemptStatus
) -> None:
    """A report of the newest attempt of a finished rollout is stored, and the rollout stays as it is."""
    attempted = await begin(time, config=RETRY)
    before = await store.update_rollout("r", status=finished)
    time.jumps(1)
    await store.update_attempt("r", attempted.attempt.attempt_id, status)
    await store.add_span(a_span(attempted))
    after = await time.rollout("r")
    assert (after.status, after.end_time) == (finished, before.end_time)
    assert await store.dequeue_rollout() is None
    assert await store.finished_counts() == {"r": 1}


async def test_an_equal_report_is_a_repeat(store: StreamStore, time: Timeline) -> None:
    """Reporting the status that an attempt has changes nothing, not even its end."""
    attempted = await begin(time)
    first = await store.update_attempt("r", attempted.attempt.attempt_id, "succeeded", reason="good")
    time.jumps(10)
    assert await store.update_attempt("r", attempted.attempt.attempt_id, "succeeded", reason="other") == first
    assert await store.finished_counts() == {"r": 1}


async def test_a_span_revives_an_attempt_that_was_silent(store: StreamStore, time: Timeline) -> None:
    """It runs again, the rollout with it, and the entry of the retry is gone; its success is the rollout's."""
    attempted = await begin(time, config=RETRY)
    await store.update_attempt("r", attempted.attempt.attempt_id, "unresponsive")
    await store.add_span(a_span(attempted))
    assert await time.statuses("r") == ("running", "running")
    assert await store.dequeue_rollout() is None
    await store.update_attempt("r", attempted.attempt.attempt_id, "succeeded")
    assert (await time.rollout("r")).status == "succeeded"


async def test_a_renewal_revives_an_attempt_whose_runner_was_thought_lost(store: StreamStore, time: Timeline) -> None:
    """While it is the newest and nobody has taken the retry; then it no longer counts as lost."""
    attempted = await begin(time, lease=30.0)
    await time.passes(31)
    assert await time.statuses("r") == ("requeuing", "unresponsive")
    assert await store.renew_attempt("r", attempted.attempt.attempt_id) == "renewed"
    assert await time.statuses("r") == ("running", "running")
    assert (await time.attempt("r")).metadata is None
    await time.passes(31)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_a_renewal_revives_nothing_else(store: StreamStore, time: Timeline) -> None:
    """An attempt that was silent by the rollout's own rule is over for its runner."""
    attempted = await begin(time, config=RETRY)
    await store.update_attempt("r", attempted.attempt.attempt_id, "unresponsive")
    assert await store.renew_attempt("r", attempted.attempt.attempt_id) == "ended"
    assert await time.statuses("r") == ("requeuing", "unresponsive")


@pytest.mark.parametrize("status", ["timeout", "succeeded", "failed"])
async def test_a_span_moves_no_attempt_that_has_ended(
    store: StreamStore, time: Timeline, status: AttemptStatus
) -> None:
    """It is stored and counts as a heartbeat, and that is all."""
    attempted = await begin(time)
    await store.update_attempt("r", attempted.attempt.attempt_id, status)
    before = await time.statuses("r")
    time.jumps(7)
    assert await store.add_span(a_span(attempted)) is not None
    assert await time.statuses("r") == before
    assert (await time.attempt("r")).last_heartbeat_time == time.now


async def test_an_attempt_revived_by_a_report_is_watched_again(store: StreamStore, time: Timeline) -> None:
    """Its lease begins anew, so it cannot stay open for ever."""
    attempted = await begin(time, lease=30.0)
    await time.passes(31)
    await store.update_attempt("r", attempted.attempt.attempt_id, "running")
    await time.passes(30)
    assert await time.statuses("r") == ("running", "running")
    await time.passes(1)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_a_superseded_attempt_that_came_back_is_watched(store: StreamStore, time: Timeline) -> None:
    """A late span opens it again; its lease closes it, also when the rollout is long finished."""
    first = await begin(time, lease=30.0)
    await time.passes(31)
    await time.take()
    await store.add_span(a_span(first))
    await store.update_attempt("r", "latest", "succeeded")
    assert [one.status for one in await store.query_attempts("r")] == ["running", "succeeded"]
    await time.passes(31)
    assert [one.status for one in await store.query_attempts("r")] == ["unresponsive", "succeeded"]
    assert (await time.rollout("r")).status == "succeeded"


async def test_start_attempt_reopens_a_finished_rollout(store: StreamStore, time: Timeline) -> None:
    """Preparing, without an end; the new attempt decides."""
    await begin(time)
    await store.update_attempt("r", "latest", "failed")
    opened = await store.start_attempt("r", "v")
    assert (opened.status, opened.end_time, opened.attempt.sequence_id) == ("preparing", None, 2)
    await store.update_attempt("r", "latest", "succeeded")
    assert (await time.rollout("r")).status == "succeeded"


async def test_start_attempt_settles_a_waiting_entry(store: StreamStore) -> None:
    """Nobody else is given the rollout."""
    await store.enqueue_rollout("x", rollout_id="r")
    await store.start_attempt("r")
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("status", get_args(RolloutStatus))
async def test_update_rollout_sets_any_status(store: StreamStore, time: Timeline, status: RolloutStatus) -> None:
    """A finished one has an end, any other none; the waiting ones are on the queue, once, and no others."""
    await begin(time)
    await store.update_attempt("r", "latest", "failed")
    time.jumps(5)
    rollout = await store.update_rollout("r", status=status)
    ends = {"failed": time.now - 5, "succeeded": time.now, "cancelled": time.now}
    assert (rollout.status, rollout.end_time) == (status, ends.get(status))
    for _ in range(2):
        await store.update_rollout("r", status=status)
    queued = await store.connection.execute("XLEN", store.functions(0).keys.tasks)
    assert queued == (1 if status in ("queuing", "requeuing") else 0)
    assert await store.finished_counts() == {"r": 1}


@pytest.mark.parametrize("finished", FINISHED)
async def test_update_rollout_to_an_end_leaves_the_attempt_to_its_runner(
    store: StreamStore, time: Timeline, finished: Finished
) -> None:
    """Entry and deadline are settled; the attempt stays open, and its runner is told that it has ended."""
    attempted = await begin(time, config=RolloutConfig(timeout_seconds=20.0), lease=30.0)
    await store.update_rollout("r", status=finished)
    await time.passes(100)
    assert await time.statuses("r") == (finished, "preparing")
    assert await store.renew_attempt("r", attempted.attempt.attempt_id) == "ended"
    with pytest.raises(AttemptEnded):
        await store.admit_call("r", attempted.attempt.attempt_id)


async def test_a_reopened_rollout_is_watched_again(store: StreamStore, time: Timeline) -> None:
    """Set back to running, its open attempt has its limits and a full lease."""
    await begin(time, lease=30.0)
    await store.update_rollout("r", status="cancelled")
    await time.passes(100)
    await store.update_rollout("r", status="running")
    await time.passes(31)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_cancelling_ends_rollout_and_attempt_in_one_step(store: StreamStore, time: Timeline) -> None:
    """Both have the reason; entry and deadline are settled; renewals and calls are refused."""
    attempted = await begin(time, config=RETRY, lease=30.0)
    rollout = await store.cancel_rollout("r", "a better idea")
    assert rollout.status == "cancelled"
    assert rollout.metadata == {REASON: "a better idea"}
    attempt = await time.attempt("r")
    assert (attempt.status, attempt.metadata) == ("failed", {REASON: "a better idea"})
    assert await store.renew_attempt("r", attempted.attempt.attempt_id) == "ended"
    with pytest.raises(AttemptEnded):
        await store.admit_call("r", attempted.attempt.attempt_id)
    await time.passes(100)
    assert await store.dequeue_rollout() is None
    assert await store.finished_counts() == {"r": 1}


async def test_cancelling_takes_a_waiting_rollout_off_the_queue(store: StreamStore) -> None:
    """Before its first attempt, and while it waits for a retry."""
    await store.enqueue_rollout("x", rollout_id="new")
    await store.enqueue_rollout("x", config=RETRY, rollout_id="retried")
    await store.start_attempt("retried")
    await store.update_attempt("retried", "latest", "failed")
    for rollout_id in ("new", "retried"):
        assert (await store.cancel_rollout(rollout_id, "no")).status == "cancelled"
    assert await store.dequeue_rollout() is None


async def test_cancelling_what_is_finished_changes_nothing(store: StreamStore, time: Timeline) -> None:
    """The result stands."""
    await begin(time)
    await store.update_attempt("r", "latest", "succeeded")
    before = await time.rollout("r")
    time.jumps(1)
    assert await store.cancel_rollout("r", "too late") == before


async def test_cancelling_needs_a_reason(store: StreamStore, time: Timeline) -> None:
    """It is what the rollout's owner will read."""
    await begin(time)
    with pytest.raises(InvalidRequest, match="needs a reason"):
        await store.cancel_rollout("r", " ")
    assert await time.statuses("r") == ("preparing", "preparing")


async def test_a_fenced_attempt_is_told_so(store: StreamStore, time: Timeline) -> None:
    """Renewal and model calls of an attempt that a newer one has replaced are refused as superseded."""
    first = await begin(time, config=RETRY)
    await store.start_attempt("r")
    assert await store.renew_attempt("r", first.attempt.attempt_id) == "superseded"
    with pytest.raises(Superseded):
        await store.admit_call("r", first.attempt.attempt_id)


async def test_update_attempt_sets_worker_heartbeat_and_metadata(store: StreamStore, time: Timeline) -> None:
    """Each alone, and what is not given stays; metadata is replaced."""
    attempted = await begin(time)
    attempt_id = attempted.attempt.attempt_id
    assert (await store.update_attempt("r", attempt_id, worker_id="v")).worker_id == "v"
    assert (await store.update_attempt("r", attempt_id, last_heartbeat_time=12.5)).last_heartbeat_time == 12.5
    assert (await store.update_attempt("r", "latest", metadata={"a": 1})).metadata == {"a": 1}
    attempt = await store.update_attempt("r", "latest", metadata={"b": None})
    assert (attempt.metadata, attempt.worker_id, attempt.last_heartbeat_time) == ({"b": None}, "v", 12.5)
    assert attempt.status == "preparing"


async def test_update_rollout_replaces_what_is_given(store: StreamStore) -> None:
    """None clears mode, resources, metadata and input; what is not given stays."""
    await store.enqueue_rollout({"a": 1}, "train", "rs-1", metadata={"m": 1}, rollout_id="r")
    changed = await store.update_rollout("r", mode="val", config=RETRY)
    assert (changed.mode, changed.config, changed.input) == ("val", RETRY, {"a": 1})
    cleared = await store.update_rollout("r", input=None, mode=None, resources_id=None, metadata=None)
    assert (cleared.input, cleared.mode, cleared.resources_id, cleared.metadata) == (None, None, None, None)
    assert (cleared.config, cleared.status) == (RETRY, "queuing")


async def test_updates_at_the_same_time_all_take_effect(store: StreamStore, settings: Settings, time: Timeline) -> None:
    """Each replaces only what it names, also where input, metadata and config are stored together."""
    await begin(time)
    numbers = range(8)
    async with await StreamStore.connect(settings=settings) as other:
        await asyncio.gather(
            *(store.update_rollout("r", input=number) for number in numbers),
            *(other.update_rollout("r", metadata={"number": number}) for number in numbers),
            *(store.update_attempt("r", "latest", metadata={"number": number}) for number in numbers),
            other.update_rollout("r", config=RETRY, mode="test"),
            other.update_attempt("r", "latest", "running"),
        )
    rollout, attempt = await time.rollout("r"), await time.attempt("r")
    assert rollout.input in numbers
    assert rollout.metadata in [{"number": number} for number in numbers]
    assert attempt.metadata in [{"number": number} for number in numbers]
    assert (rollout.config, rollout.mode, rollout.status) == (RETRY, "test", "running")


@pytest.mark.parametrize("attempt_id", ["at-none", "latest"])
async def test_reports_on_what_does_not_exist_are_refused(store: StreamStore, attempt_id: str) -> None:
    """NotFound, which is a ValueError, names what was asked for; renewing answers with a word."""
    await store.enqueue_rollout("x", rollout_id="r")
    with pytest.raises(NotFound, match=attempt_id) as refused:
        await store.update_attempt("r", attempt_id, "failed")
    assert isinstance(refused.value, ValueError)
    with pytest.raises(NotFound, match="nobody"):
        await store.update_attempt("nobody", attempt_id, "failed")
    with pytest.raises(NotFound, match="nobody"):
        await store.update_rollout("nobody", status="failed")
    with pytest.raises(NotFound, match="nobody"):
        await store.start_attempt("nobody")
    assert await store.renew_attempt("nobody", attempt_id) == "not_found_attempt"
