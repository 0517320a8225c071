"""OTLP as it goes over the wire, protobuf or JSON, to our spans.

A span is taken or rejected by itself: what is wrong with one never touches another. Attributes that our model lacks are
kept in the form that OpenTelemetry's specification gives for protocols without them: a map is flattened into dotted
keys, a mixed or nested list becomes JSON text, an empty value the empty string, bytes become hex digits.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2 as wire
from pydantic_core import to_json

from agl_streams import semconv
from agl_streams.appending import NewSpan
from agl_streams.encoding import encode_span
from agl_streams.errors import AglError, InvalidRequest
from agl_streams.models import Attributes, AttributeValue
from agl_streams.otlp import NO_SPAN_ID, NO_TRACE_ID, seconds
from agl_streams.values import read_json, shown

TRACE_ID_DIGITS: Final = len(NO_TRACE_ID)
SPAN_ID_DIGITS: Final = len(NO_SPAN_ID)
MAX_REASONS: Final = 10
"""Different reasons that one answer tells: more are one fault in many shapes."""
NO_IDENTITY: Final = f"no {semconv.ROLLOUT_ID} and {semconv.ATTEMPT_ID} on the span or its resource"

_STATUS: Final[Mapping[int, str]] = {wire.Status.STATUS_CODE_OK: "OK", wire.Status.STATUS_CODE_ERROR: "ERROR"}
_PLAIN: Final = frozenset({"string_value", "bool_value", "int_value", "double_value"})

SpansOf = dict[tuple[str, str], list[NewSpan]]
"""Spans by rollout and attempt."""


@dataclass(slots=True)
class Received:
    """What a request brought, as it will be stored.

    The fields of a message have the types of our model by themselves, so a span is written as the model would write it
    (a test compares them) without being made into one: that would take a third of the time.

    Attributes:
        max_span_bytes: limit of one span as JSON.
        numbered: spans that say their sequence number.
        unnumbered: spans that want one, in the order of the request.
        rejected: why spans were not taken, and how many each time.
    """

    max_span_bytes: int
    numbered: SpansOf = field(default_factory=SpansOf)
    unnumbered: SpansOf = field(default_factory=SpansOf)
    rejected: dict[str, int] = field(default_factory=dict[str, int])

    def reject(self, reason: str, count: int = 1) -> None:
        """Note that spans are not taken. Only the first reasons are kept apart."""
        if reason not in self.rejected and len(self.rejected) == MAX_REASONS:
            reason = "other reasons"
        self.rejected[reason] = self.rejected.get(reason, 0) + count


def from_protobuf(data: bytes, max_span_bytes: int) -> Received:
    """The spans of an ``ExportTraceServiceRequest``.

    Args:
        max_span_bytes: a span above it is rejected.

    Raises:
        InvalidRequest: the bytes are no such message.
    """
    try:
        request = ExportTraceServiceRequest.FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"Unable to parse OTLP traces payload: {error}") from error
    received = Received(max_span_bytes)
    for group in request.resource_spans:
        resource = _Resource(group.resource.attributes, group.schema_url)
        for scope in group.scope_spans:
            for span in scope.spans:
                _take(received, span, resource)
    return received


def from_json(data: bytes, max_span_bytes: int) -> Received:
    """The spans of the JSON form of the same message.

    Args:
        max_span_bytes: a span above it is rejected.

    Raises:
        InvalidRequest: no JSON, or not of the message's outer shape.
    """
    try:
        request = _object(read_json(data) if data else {})
        groups = [_object(group) for group in _array(request, "resourceSpans")]
        scopes = [[_object(scope) for scope in _array(group, "scopeSpans")] for group in groups]
        spans = [[span for scope in found for span in _array(scope, "spans")] for found in scopes]
    except InvalidRequest as error:
        raise InvalidRequest(f"Unable to parse OTLP traces payload: {error}") from error
    received = Received(max_span_bytes)
    for group, found in zip(groups, spans, strict=True):
        try:
            parsed = ParseDict(group.get("resource") or {}, Resource(), ignore_unknown_fields=True)
        except ParseError as error:
            received.reject(f"a resource that cannot be read: {error}", len(found))
            continue
        resource = _Resource(parsed.attributes, str(group.get("schemaUrl") or ""))
        for span in found:
            _take_json(received, span, resource)
    return received


def attributes_of(pairs: Iterable[KeyValue]) -> Attributes:
    """Attributes as our model has them."""
    found: Attributes = {}
    for pair in pairs:
        value = pair.value
        text = value.string_value
        if text:  # most values are texts, and asking for the kind takes as long as reading one
            found[pair.key] = text
            continue
        kind = value.WhichOneof("value")
        if kind in _PLAIN:
            found[pair.key] = getattr(value, kind)
        else:
            _put(found, pair.key, value)
    return found


class _Resource:
    """A resource, with what its spans inherit from it."""

    def __init__(self, pairs: Iterable[KeyValue], schema_url: str) -> None:
        self.attributes = attributes_of(pairs)
        self.fields = {"attributes": self.attributes, "schema_url": schema_url}


def _take(received: Received, span: wire.Span, resource: _Resource) -> None:
    attributes = attributes_of(span.attributes)
    inherited = resource.attributes
    rollout_id = attributes.get(semconv.ROLLOUT_ID, inherited.get(semconv.ROLLOUT_ID))
    attempt_id = attributes.get(semconv.ATTEMPT_ID, inherited.get(semconv.ATTEMPT_ID))
    if rollout_id is None or attempt_id is None:
        received.reject(NO_IDENTITY)
        return
    identity = str(rollout_id), str(attempt_id)
    number = _number(attributes.get(semconv.SPAN_SEQUENCE_ID, inherited.get(semconv.SPAN_SEQUENCE_ID)))
    fields = _fields(span, identity, number, attributes, resource)
    try:
        encoded = encode_span(
            to_json(fields, inf_nan_mode="constants"),
            span_id=fields["span_id"],
            name=span.name,
            attributes=attributes,
            start_time=fields["start_time"],
            end_time=fields["end_time"],
            sequence_id=number,
            max_bytes=received.max_span_bytes,
        )
    except InvalidRequest as error:
        received.reject(str(error))
        return
    (received.unnumbered if number is None else received.numbered).setdefault(identity, []).append(encoded)


def _take_json(received: Received, span: Any, resource: _Resource) -> None:
    try:
        parsed = ParseDict(_with_bytes(_object(span)), wire.Span(), ignore_unknown_fields=True)
    except (ParseError, AglError, TypeError, AttributeError) as error:  # the parser trips over odd types
        received.reject(f"a span that cannot be read: {error}")
        return
    _take(received, parsed, resource)


def _fields(
    span: wire.Span, identity: tuple[str, str], number: int | None, attributes: Attributes, resource: _Resource
) -> dict[str, Any]:
    """The fields of a `Span` in its order."""
    trace_id, span_id = _hex(span.trace_id, TRACE_ID_DIGITS), _hex(span.span_id, SPAN_ID_DIGITS)
    status = span.status
    return {
        "rollout_id": identity[0],
        "attempt_id": identity[1],
        "sequence_id": number or 0,
        "trace_id": trace_id,
        "span_id": span_id,
        "parent_id": _hex(span.parent_span_id, SPAN_ID_DIGITS) if span.parent_span_id else None,
        "name": span.name,
        "status": {"status_code": _STATUS.get(status.code, "UNSET"), "description": status.message or None},
        "attributes": attributes,
        "events": [_event(event) for event in span.events],
        "links": [_link(link) for link in span.links],
        "start_time": seconds(span.start_time_unix_nano),
        "end_time": seconds(span.end_time_unix_nano),
        "context": _context(trace_id, span_id),
        "parent": None,
        "resource": resource.fields,
    }


def _event(event: wire.Span.Event) -> dict[str, Any]:
    timestamp = seconds(event.time_unix_nano)
    return {"name": event.name, "attributes": attributes_of(event.attributes), "timestamp": timestamp}


def _link(link: wire.Span.Link) -> dict[str, Any]:
    context = _context(_hex(link.trace_id, TRACE_ID_DIGITS), _hex(link.span_id, SPAN_ID_DIGITS))
    return {"context": context, "attributes": attributes_of(link.attributes) or None}


def _context(trace_id: str, span_id: str) -> dict[str, Any]:
    return {"trace_id": trace_id, "span_id": span_id, "is_remote": False, "trace_state": {}}


def _hex(identity: bytes, digits: int) -> str:
    return identity.hex().rjust(digits, "0")


def _number(value: AttributeValue | None) -> int | None:
    """A sequence number that can be kept; anything else means that the store gives one."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if number >= 0 else None


def _put(found: Attributes, key: str, value: AnyValue) -> None:
    """Set an attribute whose value is no plain scalar, under one key or, for a map, several."""
    kind = value.WhichOneof("value")
    if kind == "kvlist_value" and value.kvlist_value.values:
        for pair in value.kvlist_value.values:
            _put(found, f"{key}.{pair.key}", pair.value)
    elif kind == "array_value":
        items = [_plain(item) for item in value.array_value.values]
        found[key] = _text(items) if (uniform := _uniform(items)) is None else uniform
    elif kind is None:
        found[key] = ""
    else:
        plain = _plain(value)
        found[key] = _text(plain) if isinstance(plain, (dict, list)) else plain


def _plain(value: AnyValue) -> Any:
    """Any value as Python has it: maps as dicts, bytes as hex digits."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return None if kind is None else getattr(value, kind)


def _uniform(items: list[Any]) -> AttributeValue | None:
    """The list as our model has it, of one scalar type; numbers of both kinds are floats. None: it has no such list."""
    kinds = {cast("type[object]", type(item)) for item in items}
    if kinds == {int, float}:
        return [float(item) for item in items]
    return cast("AttributeValue", items) if len(kinds) <= 1 and kinds <= {str, bool, int, float} else None


def _text(value: Any) -> str:
    return to_json(value, inf_nan_mode="strings").decode()


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"an object is expected, got {shown(value)}")
    return cast("dict[str, Any]", value)


def _array(holder: Mapping[str, Any], name: str) -> list[Any]:
    value = holder.get(name)
    if value is not None and not isinstance(value, list):
        raise InvalidRequest(f"{name} must be an array, got {shown(value)}")
    return cast("list[Any]", value or [])


def _with_bytes(span: dict[str, Any]) -> dict[str, Any]:
    """A span of OTLP's JSON, which writes ids as hex digits, in protobuf's own JSON, which takes bytes as base64."""
    names = [name for name in ("traceId", "spanId", "parentSpanId") if name in span]
    changed: dict[str, Any] = {name: _base64(span[name]) for name in names}
    if span.get("links"):
        changed["links"] = [_with_bytes(_object(link)) for link in _array(span, "links")]
    return {**span, **changed}


def _base64(digits: object) -> str:
    try:
        return base64.b64encode(bytes.fromhex(cast("str", digits))).decode()
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidRequest(f"an id must be hex digits, got {shown(digits)}") from error
