"""Spans of OpenTelemetry's SDK as ours: ids, times, status, events, links, resource."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags, TraceState, set_span_in_context

from agl_streams import models, otlp
from agl_streams.errors import InvalidRequest

TRACE_ID = 0xAF7
SPAN_ID = 0xB7AD
CONTEXT = SpanContext(TRACE_ID, SPAN_ID, True, TraceFlags(1), TraceState([("k", "v")]))
START_NS = 1_700_000_000_250_000_000


def converted(span: ReadableSpan) -> models.Span:
    """The span as the second of an attempt."""
    return models.Span.from_opentelemetry(span, "ro-1", "at-1", 2)


def recorded() -> ReadableSpan:
    """A span that the SDK has made and ended, with everything that a span can have."""
    tracer = TracerProvider(resource=Resource({"service.name": "test"}, "http://schema")).get_tracer("test")
    parent = tracer.start_span("parent")
    span = tracer.start_span(
        "child",
        context=set_span_in_context(parent),
        attributes={"ids": [1, 0], "flag": True, "half": 0.5, "text": "x"},
        links=[Link(CONTEXT, {"why": "because"}), Link(CONTEXT)],
        start_time=START_NS,
    )
    span.add_event("happened", {"at": (1.0, 2.0)}, timestamp=START_NS)
    span.set_status(Status(StatusCode.ERROR, "broke"))
    span.end(START_NS + 500_000_000)
    assert isinstance(span, ReadableSpan)
    return span


def test_a_recorded_span_keeps_all_it_has() -> None:
    """Every part of an ended SDK span arrives in the field that is meant for it."""
    source = recorded()
    span = converted(source)
    context, parent = source.get_span_context(), source.parent
    assert context is not None
    assert parent is not None
    assert (span.rollout_id, span.attempt_id, span.sequence_id, span.name) == ("ro-1", "at-1", 2, "child")
    assert (span.trace_id, span.span_id) == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert span.parent_id == f"{parent.span_id:016x}"
    assert span.status == models.TraceStatus(status_code="ERROR", description="broke")
    assert repr(span.attributes) == "{'ids': [1, 0], 'flag': True, 'half': 0.5, 'text': 'x'}"
    assert (span.start_time, span.end_time) == (1_700_000_000.25, 1_700_000_000.75)
    assert span.events == [models.Event(name="happened", attributes={"at": [1.0, 2.0]}, timestamp=1_700_000_000.25)]
    assert span.resource == models.OtelResource(attributes={"service.name": "test"}, schema_url="http://schema")


def test_links_keep_their_context() -> None:
    """A link has the other span's ids as hex digits, its trace state, and null for no attributes."""
    first, second = converted(recorded()).links
    assert first.context == models.SpanContext(
        trace_id=f"{TRACE_ID:032x}", span_id=f"{SPAN_ID:016x}", is_remote=True, trace_state={"k": "v"}
    )
    assert (first.attributes, second.attributes) == ({"why": "because"}, None)


def test_a_live_span_brings_no_machinery_along() -> None:
    """A span that has not ended gives its declared fields and nothing of the SDK's inside."""
    live = TracerProvider().get_tracer("test").start_span("live")
    assert isinstance(live, ReadableSpan)
    span = converted(live)
    assert span.end_time is None
    assert not span.model_extra


def test_a_span_without_context_has_zero_ids() -> None:
    """A span that was built by hand, without context or parent, is still a span."""
    span = converted(ReadableSpan("bare"))
    assert (span.trace_id, span.span_id, span.parent_id) == ("0" * 32, "0" * 16, None)
    assert (span.context, span.parent, span.start_time) == (None, None, None)


def test_a_converted_span_reads_back() -> None:
    """What came from the SDK survives the wire."""
    span = converted(recorded())
    assert models.Span.from_json(span.to_json()) == span


def test_an_attribute_that_does_not_fit_is_named() -> None:
    """The SDK lets mixed values through; the error says where they are."""
    bad = ReadableSpan("mixed", attributes={"a": ["x", 1]})
    with pytest.raises(InvalidRequest, match=r"span 'mixed': attributes\.a"):
        converted(bad)


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        (None, None),
        (0, None),
        (1.5, 1.5),
        (1_700_000_000, 1_700_000_000.0),
        (10**12, 1e12),
        (10**12 + 1, 1000.000000001),
        (START_NS, 1_700_000_000.25),
    ],
)
def test_a_bare_timestamp_is_read_by_its_size(timestamp: float | None, seconds: float | None) -> None:
    """Nothing and 0 are no time, above 1e12 are nanoseconds, the rest seconds."""
    assert otlp.seconds(timestamp) == seconds


def test_only_spans_of_the_sdk_are_recognised() -> None:
    """A span of ours is none of theirs."""
    assert otlp.is_readable_span(recorded())
    assert not otlp.is_readable_span(converted(recorded()))
