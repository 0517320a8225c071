"""The life of a rollout and its attempts as pure rules: which states there are, and what follows from what.

The server's functions decide by the same rules; these are for readers, and the oracle that tests hold the functions
against. Source: the tables of the store's semantics, which are Agent-lightning v0.3's plus leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from agl_streams.models import Attempt, AttemptStatus, RolloutConfig, RolloutStatus, WorkerStatus

QUEUING: Final[frozenset[RolloutStatus]] = frozenset({"queuing", "requeuing"})
"""Rollouts that wait in the queue."""
RUNNING: Final[frozenset[RolloutStatus]] = frozenset({"preparing", "running"})
"""Rollouts that somebody works on."""
FINISHED: Final[frozenset[RolloutStatus]] = frozenset({"succeeded", "failed", "cancelled"})
"""Rollouts that change only by ``update_rollout`` and ``start_attempt``."""

ATTEMPT_OPEN: Final[frozenset[AttemptStatus]] = frozenset({"preparing", "running"})
"""Attempts that have a lease and can run out of time."""
ATTEMPT_WAKES: Final[frozenset[AttemptStatus]] = frozenset({"preparing", "unresponsive"})
"""Attempts that a span sets running."""
ATTEMPT_DATED: Final[frozenset[AttemptStatus]] = frozenset({"succeeded", "failed", "timeout"})
"""Attempts that have an ``end_time``. An unresponsive one may come back, and has none."""

WORKER_LOST: Final = "worker_lost"
"""The reason of an attempt whose lease ran out: a fault of the infrastructure, which uses up no attempt."""


def is_queuing(status: RolloutStatus) -> bool:
    """Whether a rollout waits in the queue."""
    return status in QUEUING


def is_running(status: RolloutStatus) -> bool:
    """Whether somebody works on a rollout."""
    return status in RUNNING


def is_finished(status: RolloutStatus) -> bool:
    """Whether a rollout is at its end."""
    return status in FINISHED


def rollout_status_after(
    attempt_status: AttemptStatus,
    *,
    sequence_id: int,
    config: RolloutConfig,
    lost: int = 0,
    reason: str | None = None,
    deliveries: int = 0,
    max_deliveries: int = 1,
) -> RolloutStatus:
    """The status of an unfinished rollout whose newest attempt has just taken a status.

    Args:
        sequence_id: the attempt's number, from 1.
        lost: earlier attempts that ended as `WORKER_LOST`; they use up none of ``config.max_attempts``.
        reason: why the attempt ended.
        deliveries: claims since the rollout was last queued by an enqueue, a retry or an update.
        max_deliveries: how many of them there may be before a rollout that loses its runners is given up.
    """
    if attempt_status in ("preparing", "running", "succeeded"):
        return attempt_status
    if reason == WORKER_LOST:
        return "requeuing" if deliveries < max_deliveries else "failed"
    may_retry = attempt_status in config.retry_condition and sequence_id - lost < config.max_attempts
    return "requeuing" if may_retry else "failed"


def attempt_status_after_span(status: AttemptStatus) -> AttemptStatus:
    """The status of an attempt that has received a span. A timed-out or finished attempt is never moved by one."""
    return "running" if status in ATTEMPT_WAKES else status


def overdue(attempt: Attempt, config: RolloutConfig, now: float) -> Literal["timeout", "unresponsive"] | None:
    """What an attempt has become by the rollout's own rules, or None. Leases are another matter.

    Timeout beats unresponsive. Both compare strictly, both count from the attempt: from its start, or its last
    heartbeat if there was one.

    Args:
        now: Unix seconds.
    """
    if attempt.status not in ATTEMPT_OPEN:
        return None
    if config.timeout_seconds is not None and now - attempt.start_time > config.timeout_seconds:
        return "timeout"
    heard = attempt.start_time if attempt.last_heartbeat_time is None else attempt.last_heartbeat_time
    if config.unresponsive_seconds is not None and now - heard > config.unresponsive_seconds:
        return "unresponsive"
    return None


def worker_status_after(attempt_status: AttemptStatus) -> WorkerStatus:
    """The status of a worker whose current attempt has just taken a status."""
    if attempt_status in ATTEMPT_OPEN:
        return "busy"
    return "idle" if attempt_status in ("succeeded", "failed") else "unknown"
