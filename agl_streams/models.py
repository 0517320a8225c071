"""The shapes that go over the wire: frozen pydantic models of Agent-lightning v0.3's HTTP contract.

Field names, order, defaults and coercions are that contract's, so its client reads ours and we read its. Times are Unix
seconds as floats. Unknown keys are ignored, except on a span and its parts, which keep them. A model that does not
validate raises pydantic's ``ValidationError``, a ``ValueError``; the classmethods ``from_…`` and ``checked`` raise
`InvalidRequest` instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, FiniteFloat, model_validator

from agl_streams.errors import InvalidRequest
from agl_streams.shapes import UNSET, PaginatedResult, Unset, Wire
from agl_streams.span import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    OtelResource,
    Span,
    SpanContext,
    StatusCode,
    TraceStatus,
)

__all__ = [
    "LLM",
    "UNSET",
    "Attempt",
    "AttemptStatus",
    "AttemptedRollout",
    "AttributeValue",
    "Attributes",
    "DeadLetter",
    "EnqueueRolloutRequest",
    "Event",
    "Link",
    "NamedResources",
    "OtelResource",
    "PaginatedResult",
    "PromptTemplate",
    "ProxyLLM",
    "Resource",
    "ResourcesUpdate",
    "Rollout",
    "RolloutConfig",
    "RolloutMode",
    "RolloutStatus",
    "Span",
    "SpanContext",
    "StatusCode",
    "TraceStatus",
    "Triplet",
    "TripletPrompt",
    "TripletResponse",
    "Unset",
    "Worker",
    "WorkerStatus",
]

RolloutStatus: TypeAlias = Literal["queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"]
AttemptStatus: TypeAlias = Literal["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"]
RolloutMode: TypeAlias = Literal["train", "val", "test"]
WorkerStatus: TypeAlias = Literal["idle", "busy", "unknown"]


class RolloutConfig(Wire):
    """The rules of a rollout.

    Attributes:
        timeout_seconds: an attempt older than this is timed out.
        unresponsive_seconds: an attempt silent for longer than this is unresponsive.
        max_attempts: how many attempts there may be, at least 1.
        retry_condition: the statuses of an attempt after which there may be another.
    """

    timeout_seconds: FiniteFloat | None = None
    unresponsive_seconds: FiniteFloat | None = None
    max_attempts: int = Field(default=1, ge=1)
    retry_condition: list[AttemptStatus] = Field(default_factory=list[AttemptStatus], fail_fast=True)


class Rollout(Wire):
    """One unit of work, seen from outside."""

    rollout_id: str
    input: Any
    start_time: FiniteFloat
    end_time: FiniteFloat | None = None
    mode: RolloutMode | None = None
    resources_id: str | None = None
    status: RolloutStatus = "queuing"
    config: RolloutConfig = Field(default_factory=RolloutConfig)
    metadata: dict[str, Any] | None = None


class Attempt(Wire):
    """One execution of a rollout; ``sequence_id`` counts from 1 within the rollout."""

    rollout_id: str
    attempt_id: str
    sequence_id: int
    start_time: FiniteFloat
    end_time: FiniteFloat | None = None
    status: AttemptStatus = "preparing"
    worker_id: str | None = None
    last_heartbeat_time: FiniteFloat | None = None
    metadata: dict[str, Any] | None = None


class AttemptedRollout(Rollout):
    """A rollout with its newest attempt."""

    attempt: Attempt

    @model_validator(mode="after")
    def _same_rollout(self) -> Self:
        if self.attempt.rollout_id != self.rollout_id:
            raise ValueError("Inconsistent rollout_id between Rollout and Attempt")
        return self


class DeadLetter(Wire):
    """A rollout that was given up. Not in Agent-lightning's contract.

    Attributes:
        reason: ``worker_lost`` (its last runner was lost) or ``never_begun`` (its last runner did not begin it).
        deliveries: how many runners had it.
        rollout: with its newest attempt, if any.
    """

    rollout_id: str
    reason: str
    deliveries: int
    rollout: AttemptedRollout | Rollout


class EnqueueRolloutRequest(Wire):
    """One entry of a bulk enqueue; its fields are the keyword arguments of ``enqueue_rollout``.

    Attributes:
        rollout_id: the caller's own id, which makes the enqueue safe to repeat. Not in Agent-lightning's contract.
    """

    input: Any
    mode: RolloutMode | None = None
    resources_id: str | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None
    rollout_id: str | None = None


class Worker(Wire):
    """One runner process. Heartbeat: its last report. Dequeue: when it last asked for work. Busy and idle: when its
    last attempt began and ended."""

    worker_id: str
    status: WorkerStatus = "unknown"
    heartbeat_stats: dict[str, Any] | None = None
    last_heartbeat_time: FiniteFloat | None = None
    last_dequeue_time: FiniteFloat | None = None
    last_busy_time: FiniteFloat | None = None
    last_idle_time: FiniteFloat | None = None
    current_rollout_id: str | None = None
    current_attempt_id: str | None = None


class LLM(Wire):
    """A model behind an OpenAI-compatible endpoint."""

    resource_type: Literal["llm"] = "llm"
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = Field(default_factory=dict[str, Any])

    def get_base_url(self, rollout_id: str | None = None, attempt_id: str | None = None) -> str:
        """The base URL for an OpenAI client: the endpoint, whoever asks."""
        return self.endpoint


class ProxyLLM(Wire):
    """A model behind our proxy, which finds rollout and attempt in the path of a call."""

    resource_type: Literal["proxy_llm"] = "proxy_llm"
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = Field(default_factory=dict[str, Any])

    def get_base_url(self, rollout_id: str | None = None, attempt_id: str | None = None) -> str:
        """The base URL that attributes calls to an attempt: ``…/rollout/<id>/attempt/<id>``, before a final ``/v1``.

        Raises:
            InvalidRequest: one id without the other.
        """
        if rollout_id is None and attempt_id is None:
            return self.endpoint
        if rollout_id is None or attempt_id is None:
            raise InvalidRequest(
                f"a base URL needs rollout and attempt, or neither; got rollout {rollout_id!r}, attempt {attempt_id!r}"
            )
        host = self.endpoint.removesuffix("/")
        prefix = host.removesuffix("/v1")
        version = "/v1" if prefix != host else ""
        return f"{prefix}/rollout/{rollout_id}/attempt/{attempt_id}{version}"


class PromptTemplate(Wire):
    """A prompt with places to fill in."""

    resource_type: Literal["prompt_template"] = "prompt_template"
    template: str
    engine: Literal["jinja", "f-string", "poml"]

    def format(self, **values: Any) -> str:
        """Fill in the template, which must be of engine ``f-string``.

        Raises:
            InvalidRequest: another engine, or a place without a value.
        """
        if self.engine != "f-string":
            raise InvalidRequest(f"a template of engine {self.engine!r} cannot be filled in here; render it yourself")
        try:
            return self.template.format(**values)
        except (LookupError, AttributeError, ValueError) as error:
            raise InvalidRequest(f"the template cannot be filled in with {sorted(values)}: {error!r}") from error


Resource: TypeAlias = Annotated[LLM | ProxyLLM | PromptTemplate, Field(discriminator="resource_type")]
NamedResources: TypeAlias = dict[str, Resource]


class ResourcesUpdate(Wire):
    """One version of a bundle of resources."""

    resources_id: str
    create_time: FiniteFloat
    update_time: FiniteFloat
    version: int
    resources: NamedResources


class TripletPrompt(Wire):
    """What a model was given: token ids, and the messages they were made of."""

    token_ids: list[int]
    raw_content: Any = None


class TripletResponse(Wire):
    """What a model sampled: token ids, the natural logarithm of each one's probability, and the message."""

    token_ids: list[int]
    logprobs: list[float] = Field(default_factory=list[float])
    raw_content: Any = None


class Triplet(Wire):
    """One sample for a learner: prompt, response, and the reward that belongs to it, if any."""

    prompt: TripletPrompt
    response: TripletResponse
    reward: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
