"""What requests hold: the bodies and query parameters of the routes. Unknown fields are ignored.

Fields that Agent-lightning's contract lacks say so; they all have a default. A list stops at its first bad item: a huge
one of wrong things cannot fill the memory with complaints.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from agl_streams.models import (
    AttemptStatus,
    EnqueueRolloutRequest,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    WorkerStatus,
)

Logic: TypeAlias = Literal["and", "or"]
Order: TypeAlias = Literal["asc", "desc"]
RolloutStatuses: TypeAlias = Annotated[list[RolloutStatus], Field(fail_fast=True)]
WorkerStatuses: TypeAlias = Annotated[list[WorkerStatus], Field(fail_fast=True)]
Outcome: TypeAlias = Literal["renewed", "superseded", "ended", "not_found_attempt"]
Ids: TypeAlias = Annotated[list[str], Field(fail_fast=True)]

LEASE = Field(
    default=None, description="Extension: how soon, in seconds, the attempt is given up when it falls silent."
)


class EnqueueBody(BaseModel):
    """Rollouts to put on the queue. An entry's ``rollout_id`` is an extension: it makes the enqueue safe to repeat."""

    rollouts: Annotated[list[EnqueueRolloutRequest], Field(fail_fast=True)]


class DequeueBody(BaseModel):
    """How many rollouts are wanted, and by whom."""

    limit: int = 1
    worker_id: str | None = None
    lease_seconds: float | None = LEASE
    wait: float | None = Field(
        default=None,
        description="Extension: how many seconds to wait when the queue is empty; null: as the server's setting says.",
    )


class DequeuedBody(BaseModel):
    """The limit of the dequeue whose answer was lost."""

    limit: int = 1


class StartRolloutBody(BaseModel):
    """A rollout that is not queued."""

    input: Any
    mode: RolloutMode | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None
    worker_id: str | None = None
    lease_seconds: float | None = LEASE


class StartAttemptBody(BaseModel):
    """Who begins the attempt."""

    worker_id: str | None = None
    lease_seconds: float | None = LEASE


class PageFields(BaseModel):
    """Which part of the matches, in which order."""

    limit: int = -1
    offset: int = 0
    sort_by: str | None = None
    sort_order: Order = "asc"


class RolloutsFilter(PageFields):
    """Which rollouts."""

    status_in: RolloutStatuses | None = None
    rollout_id_in: Ids | None = None
    rollout_id_contains: str | None = None
    filter_logic: Logic = "and"


class AttemptsFilter(PageFields):
    """Attempts of a rollout."""

    sort_by: str | None = "sequence_id"


class WorkersFilter(PageFields):
    """Which workers."""

    status_in: WorkerStatuses | None = None
    worker_id_contains: str | None = None
    filter_logic: Logic = "and"


class ResourcesFilter(PageFields):
    """Which resources."""

    resources_id: str | None = None
    resources_id_contains: str | None = None


class SpansFilter(PageFields):
    """Which spans of a rollout."""

    rollout_id: str
    attempt_id: str | None = None
    trace_id: str | None = None
    trace_id_contains: str | None = None
    span_id: str | None = None
    span_id_contains: str | None = None
    parent_id: str | None = None
    parent_id_contains: str | None = None
    name: str | None = None
    name_contains: str | None = None
    filter_logic: Logic = "and"
    sort_by: str | None = "sequence_id"


class UpdateRolloutBody(BaseModel):
    """Fields to replace. An absent one stays as it is."""

    input: Any = None
    mode: RolloutMode | None = None
    resources_id: str | None = None
    status: RolloutStatus | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None


class UpdateAttemptBody(BaseModel):
    """Fields to replace. An absent one stays as it is."""

    status: AttemptStatus | None = None
    worker_id: str | None = None
    last_heartbeat_time: float | None = None
    metadata: dict[str, Any] | None = None
    reason: str | None = Field(default=None, description="Extension: why the attempt ended.")


class UpdateWorkerBody(BaseModel):
    """A heartbeat."""

    heartbeat_stats: dict[str, Any] | None = None


class NextSequenceBody(BaseModel):
    """Whose next span number."""

    rollout_id: str
    attempt_id: str


class AttemptRef(BaseModel):
    """One attempt."""

    rollout_id: str
    attempt_id: str


class NextSequencesBody(BaseModel):
    """Whose next span numbers, one for each entry."""

    attempts: Annotated[list[AttemptRef], Field(fail_fast=True)]


class NextSequence(BaseModel):
    """A span number, never handed out again."""

    sequence_id: int


class SequenceIds(BaseModel):
    """A span number for each entry of the request, in its order; null for a span that was there before."""

    sequence_ids: list[int | None]


class SpanOptions(BaseModel):
    """How a span is stored."""

    assign_sequence: bool = Field(
        default=False, description="Extension: the store gives the span its number; the one in the body is ignored."
    )


class SpansBody(BaseModel):
    """Spans of any attempts."""

    spans: Annotated[list[Span], Field(fail_fast=True)]
    assign_sequence: bool = False


class WaitBody(BaseModel):
    """Rollouts to wait for."""

    rollout_ids: Ids
    timeout: float | None = None


class CancelBody(BaseModel):
    """Why the rollout is ended."""

    reason: str


class RenewBody(BaseModel):
    """For how long the lease is renewed; null: for as long as the server's setting says."""

    lease_seconds: float | None = None


class RenewManyBody(BaseModel):
    """Whose leases are renewed."""

    attempts: Annotated[list[AttemptRef], Field(fail_fast=True)]
    lease_seconds: float | None = None


class RenewAnswer(BaseModel):
    """What became of the attempt: anything but ``renewed`` means that its agent should stop."""

    outcome: Outcome


class RenewManyAnswer(BaseModel):
    """What became of each attempt, in the order of the request."""

    outcomes: list[Outcome]


class EventsQuery(BaseModel):
    """Which events of the log.

    Attributes:
        after: a cursor from an event's ``id``; ``0`` for the beginning of the log, absent for now on.
    """

    after: str | None = None
    type: Ids | None = None
    rollout_id: Ids | None = None


class Health(BaseModel):
    """Alive."""

    status: Literal["ok"]
