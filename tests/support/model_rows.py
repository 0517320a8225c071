"""What the model of the store keeps of each thing, and how the store shows it. Times are integer microseconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agl_streams.lifecycle import ATTEMPT_OPEN
from agl_streams.models import (
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    Worker,
    WorkerStatus,
)
from agl_streams.semconv import REASON

US_PER_S = 1_000_000
Row = dict[str, Any]


@dataclass(eq=False)
class ModelAttempt:
    """One attempt. ``lease`` is the length that it was begun with; ``lease_until`` when it runs out, if it has one."""

    rollout_id: str
    attempt_id: str
    number: int
    start: int
    worker: str | None
    lease: int | None
    status: AttemptStatus = "preparing"
    end: int | None = None
    heartbeat: int | None = None
    reason: str | None = None
    metadata: Row | None = None
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    lease_until: int | None = None

    @property
    def open(self) -> bool:
        """Whether it can run out of time."""
        return self.status in ATTEMPT_OPEN

    @property
    def heard(self) -> int:
        """When it last gave a sign of life."""
        return self.start if self.heartbeat is None else self.heartbeat

    def public(self) -> Attempt:
        """As the store shows it."""
        return Attempt(
            rollout_id=self.rollout_id,
            attempt_id=self.attempt_id,
            sequence_id=self.number,
            start_time=self.start / US_PER_S,
            end_time=_seconds(self.end),
            status=self.status,
            worker_id=self.worker,
            last_heartbeat_time=_seconds(self.heartbeat),
            metadata=_with_reason(self.metadata, self.reason),
        )


@dataclass(eq=False)
class ModelRollout:
    """One rollout. ``deliveries``: claims since it was last queued on purpose; ``lost``: attempts lost with workers."""

    rollout_id: str
    input: Any
    start: int
    mode: RolloutMode | None
    resources_id: str | None
    config: RolloutConfig
    metadata: Row | None
    status: RolloutStatus
    end: int | None = None
    reason: str | None = None
    deliveries: int = 0
    lost: int = 0
    attempts: list[ModelAttempt] = field(default_factory=list[ModelAttempt])

    @property
    def latest(self) -> ModelAttempt | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    def public(self) -> Rollout:
        """As the store shows it, with its newest attempt."""
        fields: Row = {
            "rollout_id": self.rollout_id,
            "input": self.input,
            "start_time": self.start / US_PER_S,
            "end_time": _seconds(self.end),
            "mode": self.mode,
            "resources_id": self.resources_id,
            "status": self.status,
            "config": self.config,
            "metadata": _with_reason(self.metadata, self.reason),
        }
        return AttemptedRollout(**fields, attempt=self.latest.public()) if self.latest else Rollout(**fields)


@dataclass(eq=False)
class Entry:
    """A place in the queue; ``holder`` is the consumer that it was handed to and that has not begun it."""

    rollout_id: str
    holder: str | None = None


@dataclass
class ModelWorker:
    """What is known of a worker; ``shows`` is the attempt of its row, ``polled`` when it last asked for work."""

    status: WorkerStatus | None = None
    busy: int | None = None
    idle: int | None = None
    dequeue: int | None = None
    polled: int | None = None
    heartbeat: int | None = None
    stats: Row | None = None
    shows: ModelAttempt | None = None

    def is_idle(self, since: int) -> bool:
        """Whether nothing was seen of it since a time, and nothing is open."""
        seen = (self.busy, self.idle, self.dequeue, self.polled, self.heartbeat)
        return self.shows is None and max(time or 0 for time in seen) <= since

    def public(self, worker_id: str) -> Worker:
        """As the store shows it."""
        return Worker(
            worker_id=worker_id,
            status=self.status or "unknown",
            heartbeat_stats=self.stats,
            last_heartbeat_time=_seconds(self.heartbeat),
            last_dequeue_time=_seconds(max(self.dequeue or 0, self.polled or 0) or None),
            last_busy_time=_seconds(self.busy),
            last_idle_time=_seconds(self.idle),
            current_rollout_id=self.shows and self.shows.rollout_id,
            current_attempt_id=self.shows and self.shows.attempt_id,
        )


def _seconds(time: int | None) -> float | None:
    return None if time is None else time / US_PER_S


def _with_reason(metadata: Row | None, reason: str | None) -> Row | None:
    return metadata if reason is None else {**(metadata or {}), REASON: reason}
