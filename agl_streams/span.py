"""A span and its parts, in OpenTelemetry's shape, as Agent-lightning v0.3 sends them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, FiniteFloat

from agl_streams import otlp, semconv
from agl_streams.shapes import OpenWire, Wire

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

T = TypeVar("T")

StatusCode: TypeAlias = Literal["UNSET", "OK", "ERROR"]

ListOf: TypeAlias = Annotated[list[T], Field(fail_fast=True)]
# A union tries every kind of list in turn. Without fail_fast each wrong kind collects one error per element:
# 120 µs instead of 9 for 500 token ids. And a huge list of wrong things would fill the memory with errors.
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
    events: ListOf[Event]
    links: ListOf[Link]
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
            "status": status or _OK,
            "attributes": attributes,
            "events": list(events),
            "links": list(links),
            "start_time": start_time,
            "end_time": end_time,
            "context": _local_context(trace_id, span_id),
            "parent": _local_context(trace_id, parent_id) if parent_id else None,
            "resource": resource or OtelResource(attributes={}, schema_url=""),
        }
        return cls.checked(fields, f"span {name!r}")

    @classmethod
    def from_opentelemetry(cls, span: ReadableSpan, rollout_id: str, attempt_id: str, sequence_id: int) -> Self:
        """A span from one of ``opentelemetry-sdk``: nanoseconds to seconds, ids to hex digits.

        Raises:
            InvalidRequest: the SDK span has something that does not fit a `Span`; the message names it.
        """
        identity = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": sequence_id}
        return cls.checked(identity | otlp.span_fields(span), f"span {span.name!r}")


_OK: Final = TraceStatus(status_code="OK")


def _local_context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_state={})
