"""The shapes that go over the wire: frozen pydantic models of Agent-lightning v0.3's HTTP contract.

Field names, order, defaults and coercions are that contract's, so its client reads ours and we read its. Times are Unix
seconds as floats. Unknown keys are ignored, except on a span and its parts, which keep them. A model that does not
validate raises pydantic's ``ValidationError``, a ``ValueError``; the classmethods named ``from_…`` raise
`InvalidRequest` instead.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, Self, TypeAlias, TypeVar, overload

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from agl_streams import otlp, semconv
from agl_streams.errors import InvalidRequest
from agl_streams.values import invalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

T = TypeVar("T")

RolloutStatus: TypeAlias = Literal["queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"]
AttemptStatus: TypeAlias = Literal["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"]
RolloutMode: TypeAlias = Literal["train", "val", "test"]
WorkerStatus: TypeAlias = Literal["idle", "busy", "unknown"]
StatusCode: TypeAlias = Literal["UNSET", "OK", "ERROR"]

ListOf: TypeAlias = Annotated[list[T], Field(fail_fast=True)]
# A union tries every kind of list in turn. Without fail_fast each wrong kind collects one error per element:
# 120 µs instead of 9 for 500 token ids.
TupleOf: TypeAlias = Annotated[tuple[T, ...], Field(fail_fast=True), AfterValidator(list)]
# OpenTelemetry's SDK freezes sequences into tuples; only an exact match keeps (1, 0) from reading as booleans.

AttributeValue: TypeAlias = (
    str
    | bool
    | int
    | float
    | ListOf[str]
    | ListOf[bool]
    | ListOf[int]
    | ListOf[float]
    | TupleOf[str]
    | TupleOf[bool]
    | TupleOf[int]
    | TupleOf[float]
)
"""A scalar keeps its type; a list is made of one type: ints and floats become floats, other mixtures the first of
bool, int and float to which every element converts."""
Attributes: TypeAlias = dict[str, AttributeValue]


class Unset(enum.Enum):
    """The type of `UNSET`. An enumeration, so that it stays one object through pickling and copying."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""Not passed, as opposed to None, in the update calls: the field keeps its value."""


class Wire(BaseModel):
    """What all models share: frozen, and NaN and infinity written as JSON's usual extension, which reads back."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")


class OpenWire(Wire):
    """A model that keeps keys it does not know."""

    model_config = ConfigDict(extra="allow")


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
    retry_condition: list[AttemptStatus] = []


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


class TraceStatus(OpenWire):
    """How a span ended."""

    status_code: StatusCode
    description: str | None = None


class SpanContext(OpenWire):
    """The identity of a span: hex ids of 32 and 16 digits by convention, not checked."""

    trace_id: str
    span_id: str
    is_remote: bool
    trace_state: dict[str, str]


class Event(OpenWire):
    """Something that happened at one moment within a span."""

    name: str
    attributes: Attributes
    timestamp: FiniteFloat | None = None


class Link(OpenWire):
    """A span that this one points to."""

    context: SpanContext
    attributes: Attributes | None = None


class OtelResource(Wire):
    """What produced a span."""

    attributes: Attributes
    schema_url: str


class Span(OpenWire):
    """One timed event of an attempt, in OpenTelemetry's shape.

    All declared keys must be present when read from the wire. Spans of a rollout are ordered by ``sequence_id``, then
    ``start_time``, then ``end_time``.
    """

    rollout_id: str
    attempt_id: str
    sequence_id: int
    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    status: TraceStatus
    attributes: Attributes
    events: list[Event]
    links: list[Link]
    start_time: FiniteFloat | None
    end_time: FiniteFloat | None
    context: SpanContext | None
    parent: SpanContext | None
    resource: OtelResource

    @classmethod
    def from_attributes(
        cls,
        *,
        attributes: Mapping[str, Any],
        name: str = semconv.AGL_VIRTUAL,
        rollout_id: str = "",
        attempt_id: str = "",
        sequence_id: int = 0,
        trace_id: str | None = None,
        span_id: str | None = None,
        parent_id: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
        status: TraceStatus | None = None,
        events: Sequence[Event] = (),
        links: Sequence[Link] = (),
        resource: OtelResource | None = None,
    ) -> Self:
        """A span from plain attributes: missing ids are random, a missing status is OK, the contexts follow the ids.

        Args:
            attributes: checked and coerced as on the wire.
            sequence_id: 0 when the store shall assign it.
            start_time, end_time: Unix seconds.

        Raises:
            InvalidRequest: an attribute or another field does not fit; the message names it.
        """
        trace_id = trace_id or secrets.token_hex(16)
        span_id = span_id or secrets.token_hex(8)
        fields = {
            "rollout_id": rollout_id,
            "attempt_id": attempt_id,
            "sequence_id": sequence_id,
            "trace_id": trace_id,
            "span_id": span_id,
            "parent_id": parent_id,
            "name": name,
            "status": status or TraceStatus(status_code="OK"),
            "attributes": attributes,
            "events": list(events),
            "links": list(links),
            "start_time": start_time,
            "end_time": end_time,
            "context": _local_context(trace_id, span_id),
            "parent": _local_context(trace_id, parent_id) if parent_id else None,
            "resource": resource or OtelResource(attributes={}, schema_url=""),
        }
        return cls._checked(fields)

    @classmethod
    def from_opentelemetry(cls, span: ReadableSpan, rollout_id: str, attempt_id: str, sequence_id: int) -> Self:
        """A span from one of ``opentelemetry-sdk``: nanoseconds to seconds, ids to hex digits.

        Raises:
            InvalidRequest: the SDK span has something that does not fit a `Span`; the message names it.
        """
        identity = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": sequence_id}
        return cls._checked(identity | otlp.span_fields(span))

    @classmethod
    def _checked(cls, fields: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise invalid(error, f"span {fields['name']!r}") from error


def _local_context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_state={})


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
    sampling_parameters: dict[str, Any] = {}

    def get_base_url(self, rollout_id: str | None = None, attempt_id: str | None = None) -> str:
        """The base URL for an OpenAI client: the endpoint, whoever asks."""
        return self.endpoint


class ProxyLLM(Wire):
    """A model behind our proxy, which finds rollout and attempt in the path of a call."""

    resource_type: Literal["proxy_llm"] = "proxy_llm"
    endpoint: str
    model: str
    api_key: str | None = None
    sampling_parameters: dict[str, Any] = {}

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


class PaginatedResult(Wire, Generic[T], Sequence[T]):
    """One page of a query, and a sequence of the page's items.

    Attributes:
        limit: the page size asked for, -1 for no limit.
        offset: matches before this page.
        total: matches before paging.
    """

    items: list[T]
    limit: int
    offset: int
    total: int

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:  # pyright: ignore[reportIncompatibleMethodOverride] — items, not field names
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.items[index]


class TripletPrompt(Wire):
    """What a model was given: token ids, and the messages they were made of."""

    token_ids: list[int]
    raw_content: Any = None


class TripletResponse(Wire):
    """What a model sampled: token ids, the natural logarithm of each one's probability, and the message."""

    token_ids: list[int]
    logprobs: list[float] = []
    raw_content: Any = None


class Triplet(Wire):
    """One sample for a learner: prompt, response, and the reward that belongs to it, if any."""

    prompt: TripletPrompt
    response: TripletResponse
    reward: float | None = None
    metadata: dict[str, Any] = {}
