"""OTLP requests as exporters make them: from plain Python values, in protobuf or in OTLP's own JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from agl_streams.models import AttemptedRollout

ROLLOUT = "agentlightning.rollout_id"
ATTEMPT = "agentlightning.attempt_id"
SEQUENCE = "agentlightning.span_sequence_id"


def value(plain: Any) -> AnyValue:
    """A Python value as OTLP has it; None is the empty value."""
    match plain:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=plain)
        case int():
            return AnyValue(int_value=plain)
        case float():
            return AnyValue(double_value=plain)
        case str():
            return AnyValue(string_value=plain)
        case bytes():
            return AnyValue(bytes_value=plain)
        case list():
            items = cast("list[Any]", plain)
            return AnyValue(array_value=ArrayValue(values=[value(one) for one in items]))
        case _:
            return AnyValue(kvlist_value=KeyValueList(values=pairs(plain)))


def pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes as OTLP has them."""
    return [KeyValue(key=key, value=value(plain)) for key, plain in attributes.items()]


def wire_span(number: int, **attributes: Any) -> WireSpan:
    """A span whose id is a number; keyword arguments are attributes."""
    return WireSpan(
        trace_id=bytes(15) + b"\x01",
        span_id=number.to_bytes(8, "big"),
        name=f"span {number}",
        start_time_unix_nano=1_700_000_000_500_000_000,
        end_time_unix_nano=1_700_000_001_000_000_000,
        attributes=pairs(attributes),
    )


def export(*groups: tuple[Mapping[str, Any], list[WireSpan]], schema_url: str = "") -> ExportTraceServiceRequest:
    """A request: (attributes of a resource, its spans) in turn."""
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=pairs(attributes)),
                scope_spans=[ScopeSpans(spans=spans)],
                schema_url=schema_url,
            )
            for attributes, spans in groups
        ]
    )


def identity(attempted: AttemptedRollout) -> dict[str, Any]:
    """The attributes that say whose a span is."""
    return {ROLLOUT: attempted.rollout_id, ATTEMPT: attempted.attempt.attempt_id}


def as_json(request: ExportTraceServiceRequest) -> bytes:
    """OTLP's JSON: as protobuf's, but ids are hex digits."""
    plain = MessageToDict(request)

    def with_hex(holder: dict[str, Any], source: Any) -> None:
        for name, digits in (("traceId", source.trace_id), ("spanId", source.span_id)):
            if name in holder:
                holder[name] = digits.hex()

    for group, wire_group in zip(plain.get("resourceSpans", []), request.resource_spans, strict=True):
        for scope, wire_scope in zip(group["scopeSpans"], wire_group.scope_spans, strict=True):
            for span, one in zip(scope.get("spans", []), wire_scope.spans, strict=True):
                with_hex(span, one)
                if one.parent_span_id:
                    span["parentSpanId"] = one.parent_span_id.hex()
                for link, wire_link in zip(span.get("links", []), one.links, strict=True):
                    with_hex(link, wire_link)
    return json.dumps(plain).encode()
