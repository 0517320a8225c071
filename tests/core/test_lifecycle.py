"""The rules of the life of rollouts and attempts, case by case."""

from __future__ import annotations

from typing import Literal, get_args

import pytest

from agl_streams import lifecycle
from agl_streams.lifecycle import overdue, rollout_status_after
from agl_streams.models import Attempt, AttemptStatus, RolloutConfig, RolloutStatus, WorkerStatus

Lost = Literal["failed", "timeout", "unresponsive"]
LOST: tuple[Lost, ...] = get_args(Lost)


def config(max_attempts: int, *retry: AttemptStatus) -> RolloutConfig:
    """A configuration that retries after these statuses."""
    return RolloutConfig(max_attempts=max_attempts, retry_condition=list(retry))


def test_every_status_has_its_place() -> None:
    """A rollout is queued, worked on or finished, and never two of them."""
    sets = [lifecycle.QUEUING, lifecycle.RUNNING, lifecycle.FINISHED]
    assert frozenset[RolloutStatus]().union(*sets) == set(get_args(RolloutStatus))
    assert sum(map(len, sets)) == len(get_args(RolloutStatus))
    for status in get_args(RolloutStatus):
        places = [lifecycle.is_queuing(status), lifecycle.is_running(status), lifecycle.is_finished(status)]
        assert places.count(True) == 1


@pytest.mark.parametrize("status", ["preparing", "running", "succeeded"])
def test_a_rollout_follows_an_attempt_that_goes_well(
    status: Literal["preparing", "running", "succeeded"],
) -> None:
    """These statuses are the rollout's too."""
    assert rollout_status_after(status, sequence_id=1, config=config(1)) == status


@pytest.mark.parametrize("status", LOST)
@pytest.mark.parametrize(("sequence_id", "after"), [(1, "requeuing"), (2, "requeuing"), (3, "failed"), (4, "failed")])
def test_a_listed_status_is_retried_while_attempts_are_left(status: Lost, sequence_id: int, after: str) -> None:
    """The retry rule compares the attempt's number with the limit."""
    assert rollout_status_after(status, sequence_id=sequence_id, config=config(3, status)) == after


@pytest.mark.parametrize("status", LOST)
def test_an_unlisted_status_fails_the_rollout(status: Lost) -> None:
    """Attempts left do not matter when the status is not in the retry condition."""
    others: list[AttemptStatus] = [other for other in LOST if other != status]
    assert rollout_status_after(status, sequence_id=1, config=config(9, *others)) == "failed"


@pytest.mark.parametrize(("lost", "after"), [(0, "failed"), (1, "requeuing"), (2, "requeuing")])
def test_attempts_lost_to_the_infrastructure_use_up_no_attempt(lost: int, after: str) -> None:
    """The third attempt is the second that counts when one before it lost its worker."""
    assert rollout_status_after("failed", sequence_id=3, lost=lost, config=config(3, "failed")) == after


@pytest.mark.parametrize(("deliveries", "after"), [(1, "requeuing"), (2, "requeuing"), (3, "failed"), (4, "failed")])
def test_a_lost_worker_costs_a_delivery(deliveries: int, after: str) -> None:
    """A rollout whose workers vanish goes back to the queue until its deliveries are used up, whatever its limits."""
    status = rollout_status_after(
        "unresponsive",
        sequence_id=5,
        config=config(1),
        reason=lifecycle.WORKER_LOST,
        deliveries=deliveries,
        max_deliveries=3,
    )
    assert status == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("preparing", "running"),
        ("running", "running"),
        ("unresponsive", "running"),
        ("timeout", "timeout"),
        ("failed", "failed"),
        ("succeeded", "succeeded"),
    ],
)
def test_a_span_wakes_what_can_still_run(before: AttemptStatus, after: AttemptStatus) -> None:
    """A timed-out or finished attempt is never moved by a span."""
    assert lifecycle.attempt_status_after_span(before) == after


@pytest.mark.parametrize(
    ("timeout", "unresponsive", "heartbeat", "after"),
    [
        (None, None, None, None),
        (None, 1.0, None, "unresponsive"),
        (1.0, None, None, "timeout"),
        (0.5, 1.0, None, "timeout"),
        (2.0, 0.5, None, "unresponsive"),
        (1.5, 1.5, None, None),
        (None, 1.0, 101.0, None),
        (None, 1.0, 100.25, "unresponsive"),
        (1.0, 1.0, 101.5, "timeout"),
    ],
)
def test_time_limits_count_from_the_attempt(
    timeout: float | None, unresponsive: float | None, heartbeat: float | None, after: str | None
) -> None:
    """An attempt of age 1.5 s: strictly above the limit, timeout before silence, silence since the last heartbeat."""
    limits = RolloutConfig(timeout_seconds=timeout, unresponsive_seconds=unresponsive)
    assert overdue(attempt("running", heartbeat), limits, 101.5) == after


def test_a_heartbeat_at_the_epoch_is_a_heartbeat() -> None:
    """The time 0.0 is not the same as none."""
    assert overdue(attempt("running", 0.0), RolloutConfig(unresponsive_seconds=60), 101.0) == "unresponsive"


@pytest.mark.parametrize("status", ["succeeded", "failed", "timeout", "unresponsive"])
def test_only_open_attempts_run_out_of_time(status: AttemptStatus) -> None:
    """What is over, or already given up, is not judged again."""
    assert overdue(attempt(status, None), RolloutConfig(timeout_seconds=0.0), 999.0) is None


@pytest.mark.parametrize(
    ("status", "worker"),
    [
        ("preparing", "busy"),
        ("running", "busy"),
        ("succeeded", "idle"),
        ("failed", "idle"),
        ("timeout", "unknown"),
        ("unresponsive", "unknown"),
    ],
)
def test_a_worker_follows_its_attempt(status: AttemptStatus, worker: WorkerStatus) -> None:
    """Busy while it works, idle when it has reported, unknown when it has gone silent."""
    assert lifecycle.worker_status_after(status) == worker


def attempt(status: AttemptStatus, heartbeat: float | None) -> Attempt:
    """An attempt that began at 100."""
    return Attempt(
        rollout_id="ro-1",
        attempt_id="at-1",
        sequence_id=1,
        start_time=100,
        status=status,
        last_heartbeat_time=heartbeat,
    )
