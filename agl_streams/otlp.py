"""OpenTelemetry spans to ours: from an SDK span to the fields of `agl_streams.models.Span`.

Reads the SDK's objects by their public properties and never imports the SDK at run time: it would be a good part of
the start of a process that may never see such a span.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import Link, SpanContext
    from opentelemetry.util.types import AttributeValue

NANOSECONDS_ABOVE: Final = 1e12
"""A bare timestamp above this is nanoseconds; as seconds it would be the year 33658. Agent-lightning's rule."""
NANOSECONDS_PER_SECOND: Final = 10**9
"""An int: dividing ints is exact to the last bit, while today's nanoseconds no longer fit a float."""
NO_TRACE_ID: Final = "0" * 32
NO_SPAN_ID: Final = "0" * 16


def seconds(timestamp: float | None) -> float | None:
    """A bare timestamp as Unix seconds: nothing or 0 is None, above 1e12 it is nanoseconds, else seconds already."""
    if not timestamp:
        return None
    return timestamp / NANOSECONDS_PER_SECOND if timestamp > NANOSECONDS_ABOVE else float(timestamp)


def hex_trace_id(trace_id: int) -> str:
    """A trace id as 32 lower-case hex digits."""
    return f"{trace_id:032x}"


def hex_span_id(span_id: int) -> str:
    """A span id as 16 lower-case hex digits."""
    return f"{span_id:016x}"


def span_fields(span: ReadableSpan) -> dict[str, Any]:
    """The fields of a `Span` that an SDK span knows; the rollout, the attempt and the sequence id are the caller's.

    Only declared fields are taken: a live SDK span also has samplers, locks and the like, which are not data.

    Args:
        span: a span of ``opentelemetry-sdk``, ended or still live.
    """
    context = span.get_span_context()
    return {
        "trace_id": hex_trace_id(context.trace_id) if context else NO_TRACE_ID,
        "span_id": hex_span_id(context.span_id) if context else NO_SPAN_ID,
        "parent_id": hex_span_id(span.parent.span_id) if span.parent else None,
        "name": span.name,
        "status": {"status_code": span.status.status_code.name, "description": span.status.description},
        "attributes": _attributes(span.attributes),
        "events": [_event(event) for event in span.events],
        "links": [_link(link) for link in span.links],
        "start_time": seconds(span.start_time),
        "end_time": seconds(span.end_time),
        "context": _context(context) if context else None,
        "parent": _context(span.parent) if span.parent else None,
        "resource": {"attributes": _attributes(span.resource.attributes), "schema_url": span.resource.schema_url or ""},
    }


def is_readable_span(value: object) -> TypeGuard[ReadableSpan]:
    """Whether a value is a span of the SDK. Where the SDK was never imported, nothing is."""
    sdk = sys.modules.get("opentelemetry.sdk.trace")
    return sdk is not None and isinstance(value, sdk.ReadableSpan)


def _attributes(attributes: Mapping[str, AttributeValue] | None) -> dict[str, Any]:
    return dict(attributes) if attributes else {}


def _context(context: SpanContext) -> dict[str, Any]:
    return {
        "trace_id": hex_trace_id(context.trace_id),
        "span_id": hex_span_id(context.span_id),
        "is_remote": context.is_remote,
        "trace_state": dict(context.trace_state) if context.trace_state else {},
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "name": event.name,
        "attributes": _attributes(event.attributes),
        "timestamp": seconds(event.timestamp),
    }


def _link(link: Link) -> dict[str, Any]:
    return {"context": _context(link.context), "attributes": _attributes(link.attributes) or None}
