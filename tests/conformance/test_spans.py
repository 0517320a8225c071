"""Spans over the client: storing, numbering, and what a span does to its attempt."""

from __future__ import annotations

from typing import Any

from agentlightning import LightningStoreClient
from agentlightning.types import (
    AttemptedRollout,
    Event,
    Link,
    OtelResource,
    RolloutConfig,
    Span,
    SpanContext,
    TraceStatus,
)
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.conformance.compare import Both, Notes

CONTEXT = SpanContext(trace_id="f" * 32, span_id="e" * 16, is_remote=True, trace_state={"k": "v"})


def span_of(attempted: AttemptedRollout, **changes: Any) -> Span:
    """A span of an attempt."""
    fields: dict[str, Any] = {
        "rollout_id": attempted.rollout_id,
        "attempt_id": attempted.attempt.attempt_id,
        "sequence_id": 1,
        "name": "step",
        "attributes": {"n": 1},
        "start_time": 1.5,
    }
    return Span.from_attributes(**(fields | changes))


def recorded(attributes: dict[str, Any]) -> ReadableSpan:
    """A finished span of the OpenTelemetry SDK with parent, link, event and status."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "test"}, "https://schema.example/1"))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer") as outer:
        links = [trace.Link(outer.get_span_context(), {"l": 1})]
        with tracer.start_as_current_span("inner", attributes=attributes, links=links) as inner:
            inner.add_event("happened", {"e": True}, timestamp=1_700_000_000_000_000_000)
            inner.set_status(trace.StatusCode.ERROR, "went wrong")
    return memory.get_finished_spans()[0]


async def test_a_span_is_stored_as_it_is(both: Both) -> None:
    """A stored span is the span that was sent, with every part, every extra field and the type of every value."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        attributes = {
            "text": "é\u2028\"'\\",
            "bool": True,
            "int": 2**53 + 1,
            "float": 1.0,
            "tiny": 1e-300,
            "empty": [],
            "texts": ["a", ""],
            "bools": [True, False],
            "ints": [1, -2],
            "floats": [1.0, 2.5],
            "mixed": [1, 2.5],
            "token ids": list(range(200)),
        }
        await note("plain", client.add_span(span_of(attempted, attributes=attributes)))
        full = span_of(attempted, parent_id="d" * 16, end_time=2.5, name="").model_copy(
            update={
                "sequence_id": 7,
                "status": TraceStatus.model_validate({"status_code": "ERROR", "description": "no", "extra": [1]}),
                "events": [
                    Event.model_validate({"name": "e", "attributes": {"x": 1}, "timestamp": 2, "more": {"y": 1}})
                ],
                "links": [
                    Link.model_validate({"context": CONTEXT, "extra": 1}),
                    Link(context=CONTEXT, attributes={"l": ""}),
                ],
                "context": CONTEXT,
                "parent": SpanContext.model_validate(CONTEXT.model_dump() | {"extra": "kept"}),
                "resource": OtelResource(attributes={"service": "s"}, schema_url="https://schema.example"),
            }
        )
        full = Span.model_validate(full.model_dump() | {"kind": "client", "nested": {"a": [None, {"b": 1.0}]}})
        await note("full", client.add_span(full))
        bare = span_of(attempted, start_time=None).model_copy(update={"context": None, "parent": None})
        await note("bare", client.add_span(bare))
        await note("read back", client.query_spans(attempted.rollout_id))

    await both.same(scenario)


async def test_a_span_is_stored_once(both: Both) -> None:
    """A span id that the attempt has already is answered with None, whatever else the span says; another attempt may
    have it too."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        await note("first", client.add_span(span_of(attempted, span_id="a" * 16)))
        await note("again", client.add_span(span_of(attempted, span_id="a" * 16)))
        await note("with another name", client.add_span(span_of(attempted, span_id="a" * 16, name="other")))
        spans = [span_of(attempted, span_id=letter * 16, sequence_id=2) for letter in "bab"]
        await note("many", client.add_many_spans(spans))
        await note("no spans", client.add_many_spans([]))
        retry = await client.start_attempt(attempted.rollout_id)
        await note("of another attempt", client.add_span(span_of(retry, span_id="a" * 16, sequence_id=3)))
        await note("all", client.query_spans(attempted.rollout_id))

    await both.same(scenario)


async def test_spans_of_many_attempts_are_stored_together(both: Both) -> None:
    """Spans of several rollouts may be sent together, and each goes to its own."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        one, two = await client.start_rollout(1), await client.start_rollout(2)
        spans = [span_of(who, sequence_id=number) for number, who in enumerate((one, two, one), 1)]
        await note("stored", client.add_many_spans(spans))
        await note("of one", client.query_spans(one.rollout_id))
        await note("of two", client.query_spans(two.rollout_id))

    await both.same(scenario)


async def test_a_span_needs_its_attempt(both: Both) -> None:
    """A span of an unknown rollout or attempt is refused."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        await note("unknown rollout", client.add_span(span_of(attempted, rollout_id="ro-unknown")))
        await note("unknown attempt", client.add_span(span_of(attempted, attempt_id="at-unknown")))
        await note("latest is no attempt", client.add_span(span_of(attempted, attempt_id="latest")))
        await note("none", client.query_spans(attempted.rollout_id))
        await note("rollout", client.get_rollout_by_id(attempted.rollout_id))

    await both.same(scenario)


async def test_the_first_span_starts_its_attempt(both: Both) -> None:
    """A span moves a preparing or unresponsive attempt and its rollout to running, and is a heartbeat."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1, worker_id="w", config=RolloutConfig(max_attempts=3))
        await client.add_span(span_of(attempted))
        await note("running", client.get_rollout_by_id(attempted.rollout_id))
        await note("its worker", client.get_worker_by_id("w"))
        config = RolloutConfig(max_attempts=3, retry_condition=["unresponsive"])
        lost = await client.start_rollout(2, worker_id="v", config=config)
        await client.update_attempt(lost.rollout_id, "latest", status="unresponsive")
        await note("lost", client.get_rollout_by_id(lost.rollout_id))
        await client.add_span(span_of(lost))
        await note("back", client.get_rollout_by_id(lost.rollout_id))
        await note("worker", client.get_worker_by_id("v"))
        await note("its queue entry is void", client.dequeue_rollout())

    await both.same(scenario)


async def test_a_span_of_an_ended_attempt_is_kept(both: Both) -> None:
    """A span that comes after the end of its attempt is stored and changes no status."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        for status in ("succeeded", "failed", "timeout"):
            attempted = await client.start_rollout(status)
            await client.update_attempt(attempted.rollout_id, "latest", status=status)
            await note(f"stored {status}", client.add_span(span_of(attempted)))
            await note(f"attempt {status}", client.get_rollout_by_id(attempted.rollout_id))
        old = await client.start_rollout("old")
        await client.start_attempt(old.rollout_id)
        await note("stored of an older one", client.add_span(span_of(old)))
        await note("older", client.query_attempts(old.rollout_id))
        await note("rollout", client.get_rollout_by_id(old.rollout_id))

    await both.same(scenario)


async def test_span_numbers_are_handed_out_once(both: Both) -> None:
    """Numbers count per rollout, over all its attempts, and go on above any number that a span has brought."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        one, two = await client.start_rollout(1), await client.start_rollout(2)
        ids = one.rollout_id, one.attempt.attempt_id
        await note("first", client.get_next_span_sequence_id(*ids))
        await note("second", client.get_next_span_sequence_id(*ids))
        retry = await client.start_attempt(one.rollout_id)
        await note("of the retry", client.get_next_span_sequence_id(one.rollout_id, retry.attempt.attempt_id))
        await note("of the other", client.get_next_span_sequence_id(two.rollout_id, two.attempt.attempt_id))
        pairs = [ids, (two.rollout_id, two.attempt.attempt_id), ids]
        await note("many", client.get_many_span_sequence_ids(pairs))
        await note("of none", client.get_many_span_sequence_ids([]))
        await client.add_span(span_of(one, sequence_id=100, span_id="a" * 16))
        await note("after 100", client.get_next_span_sequence_id(*ids))
        await client.add_span(span_of(one, sequence_id=50))
        await note("after 50", client.get_next_span_sequence_id(*ids))
        await client.add_span(span_of(one, sequence_id=200, span_id="a" * 16))
        await note("after a duplicate of 200", client.get_next_span_sequence_id(*ids))
        await note("of an unknown attempt", client.get_next_span_sequence_id(one.rollout_id, "at-unknown"))

    await both.same(scenario)


async def test_unknown_rollouts_are_numbered_too(both: Both) -> None:
    """A number may be asked for before the store knows the rollout."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("first", client.get_next_span_sequence_id("ro-unknown", "at-unknown"))
        await note("second", client.get_next_span_sequence_id("ro-unknown", "at-unknown"))

    await both.same(scenario)


async def test_a_span_of_the_sdk_is_stored(both: Both) -> None:
    """A span of OpenTelemetry's SDK is stored with what it holds, under the given number or the next."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        ids = attempted.rollout_id, attempted.attempt.attempt_id
        span = recorded({"k": "v", "list": (1, 2), "f": 0.5})
        await note("numbered by the store", client.add_otel_span(*ids, span))
        await note("again", client.add_otel_span(*ids, span))
        await note("numbered", client.add_otel_span(*ids, recorded({}), sequence_id=40))
        await note("number zero", client.add_otel_span(*ids, recorded({}), sequence_id=0))
        await note("next", client.get_next_span_sequence_id(*ids))
        await note("all", client.query_spans(attempted.rollout_id))
        await note("unknown", client.add_otel_span("ro-unknown", "at-unknown", recorded({})))

    await both.same(scenario)
