"""Spans that come by OTLP: the exporters of the client's day, and requests at the edge of the protocol."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import aiohttp
from agentlightning import LightningStoreClient
from agentlightning.types import AttemptedRollout
from agentlightning.utils.otlp import LightningStoreOTLPExporter
from google.rpc.status_pb2 import Status
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter

from tests.conformance.compare import Both, Notes

ROLLOUT, ATTEMPT, NUMBER = (f"agentlightning.{name}" for name in ("rollout_id", "attempt_id", "span_sequence_id"))
PROTOBUF = {"content-type": "application/x-protobuf"}


def ids_of(attempted: AttemptedRollout) -> dict[str, str]:
    """The attributes that say whose a span is."""
    return {ROLLOUT: attempted.rollout_id, ATTEMPT: attempted.attempt.attempt_id}


def export(exporter: SpanExporter, resource: dict[str, Any], *, batched: bool = False) -> None:
    """Record two nested spans with all that a span may have, and export them."""
    provider = TracerProvider(resource=Resource(resource, "https://schema.example/1"))
    provider.add_span_processor(BatchSpanProcessor(exporter) if batched else SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test", "1")
    with tracer.start_as_current_span("outer", kind=trace.SpanKind.CLIENT) as outer:
        outer.set_attributes({"s": "é", "b": True, "i": 3, "f": 1.0, "list": ["a", "b"], "ints": [1, 2], "none": []})
        link = trace.Link(outer.get_span_context(), {"l": 1})
        with tracer.start_as_current_span("inner", links=[link]) as inner:
            inner.add_event("event", {"e": 1.5})
            inner.record_exception(ValueError("no"))
            inner.set_status(trace.StatusCode.ERROR, "went wrong")
    provider.shutdown()


def proto(name: str, number: int, attributes: dict[str, AnyValue], **fields: Any) -> ProtoSpan:
    """A span as it goes over the wire."""
    pairs = [KeyValue(key=key, value=value) for key, value in attributes.items()]
    identity = {"trace_id": b"\x01" * 16, "span_id": number.to_bytes(8, "big")}
    return ProtoSpan(name=name, attributes=pairs, **(identity | fields))


def request_of(resource: dict[str, str], *spans: ProtoSpan) -> bytes:
    """An export request with one resource."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    for key, value in resource.items():
        group.resource.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))
    group.scope_spans.add().spans.extend(spans)
    return request.SerializeToString()


async def post(client: LightningStoreClient, body: bytes, **headers: str) -> tuple[Any, ...]:
    """Status, media type and body of the answer to an export."""
    named = PROTOBUF | {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.post(client.otlp_traces_endpoint(), data=body, headers=named) as answer,
    ):
        return answer.status, answer.headers.get("content-type"), await answer.read()


async def test_the_exporter_of_the_sdk_is_served(both: Both) -> None:
    """Spans that OpenTelemetry's own exporter sends are stored, plain or compressed, one by one or in a batch."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        for compression in (Compression.NoCompression, Compression.Gzip):
            for batched in (False, True):
                attempted = await client.start_rollout(1)
                exporter = OTLPSpanExporter(client.otlp_traces_endpoint(), compression=compression, timeout=20)
                await asyncio.to_thread(export, exporter, ids_of(attempted) | {"service.name": "s"}, batched=batched)
                label = f"{compression.value}, batched: {batched}"
                await note(label, client.query_spans(attempted.rollout_id, sort_by="name"))
                await note(f"{label}: attempt", client.get_latest_attempt(attempted.rollout_id))

    await both.same(scenario)


async def test_the_exporter_of_the_store_is_served(both: Both) -> None:
    """Agentlightning's own exporter says by itself whose the spans are."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        exporter = LightningStoreOTLPExporter()
        exporter.enable_store_otlp(client.otlp_traces_endpoint(), attempted.rollout_id, attempted.attempt.attempt_id)
        await asyncio.to_thread(export, exporter, {"service.name": "s"})
        await note("stored", client.query_spans(attempted.rollout_id))
        exporter.disable_store_otlp()
        await asyncio.to_thread(export, exporter, {})
        await note("no more", client.query_spans(attempted.rollout_id))

    await both.same(scenario)


async def test_a_span_says_whose_it_is(both: Both) -> None:
    """A span's own attributes win over its resource's, a number may be text, and one without an owner is left out."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        one, two = await client.start_rollout(1), await client.start_rollout(2)
        text = {key: AnyValue(string_value=value) for key, value in ids_of(two).items()}
        spans = [
            proto("of the resource", 1, {}),
            proto("of the span", 2, text),
            proto("numbered", 3, {NUMBER: AnyValue(int_value=40)}),
            proto("numbered by text", 4, {NUMBER: AnyValue(string_value="41")}),
            proto("number zero", 5, {NUMBER: AnyValue(int_value=0)}),
            proto("negative", 6, {NUMBER: AnyValue(int_value=-5)}),
            proto("no number", 7, {NUMBER: AnyValue(string_value="x")}),
        ]
        await note("answer", post(client, request_of(ids_of(one), *spans)))
        await note("of one", client.query_spans(one.rollout_id, sort_by="span_id"))
        await note("of two", client.query_spans(two.rollout_id))
        await note("again", post(client, request_of(ids_of(one), *spans)))
        await note("stored once", client.query_spans(one.rollout_id, sort_by="span_id"))
        shared = ids_of(one) | {NUMBER: "60"}
        await note("shared", post(client, request_of(shared, proto("a", 20, {}), proto("b", 21, {}))))
        found = await client.query_spans(one.rollout_id, name_contains="", sort_by="span_id")
        note.value("shared number", [span.sequence_id for span in found][-2:])

    await both.same(scenario)


async def test_values_of_every_kind_are_kept(both: Both) -> None:
    """Strings, booleans, numbers, bytes and lists are kept, as are missing times, ids and statuses."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        numbers = ArrayValue(values=[AnyValue(int_value=1), AnyValue(int_value=2)])
        attributes = {
            "text": AnyValue(string_value="é"),
            "empty": AnyValue(string_value=""),
            "bool": AnyValue(bool_value=False),
            "int": AnyValue(int_value=-(2**62)),
            "double": AnyValue(double_value=2.0),
            "bytes": AnyValue(bytes_value=b"\x00\xff"),
            "list": AnyValue(array_value=numbers),
            "no list": AnyValue(array_value=ArrayValue()),
        }
        spans = [
            proto("values", 1, attributes, start_time_unix_nano=1_700_000_000_123_456_789),
            proto("short ids", 2, {}, trace_id=b"\x01", span_id=b"\x02", parent_span_id=b"\x03"),
            proto("", 3, {}, parent_span_id=b"\x01" * 8, end_time_unix_nano=1),
            proto("no ids", 4, {}, trace_id=b"", span_id=b""),
        ]
        spans[1].status.code = 2
        spans[1].status.message = "bad"
        await note("answer", post(client, request_of(ids_of(attempted), *spans)))
        await note("stored", client.query_spans(attempted.rollout_id))

    await both.same(scenario)


async def test_values_that_the_span_model_lacks_are_kept(both: Both) -> None:
    """A map, an empty value and a mixed list fail nobody's batch."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        pair = KeyValue(key="k", value=AnyValue(int_value=1))
        value = AnyValue()
        value.kvlist_value.values.append(pair)
        spans = [proto("map", 1, {"m": value, "null": AnyValue()}), proto("plain", 2, {})]
        status, _, _ = await post(client, request_of(ids_of(attempted), *spans))
        note.value("status", status)
        found = await client.query_spans(attempted.rollout_id)
        note.value("stored", json.dumps([span.attributes for span in found]))

    await both.same(scenario)


async def test_spans_without_an_owner_do_not_fail_a_batch(both: Both) -> None:
    """Spans that say no rollout and attempt are left out, and the others are stored."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        own = {key: AnyValue(string_value=value) for key, value in ids_of(attempted).items()}
        body = request_of({}, proto("mine", 1, own), proto("nobody's", 2, {}))
        status, media_type, _ = await post(client, body)
        note.value("answer", (status, media_type))
        await note("stored", client.query_spans(attempted.rollout_id))

    await both.same(scenario)


async def test_spans_of_unknown_attempts_are_refused(both: Both) -> None:
    """Spans of an unknown attempt are not stored, those of a known one in the same request are."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        text = {ROLLOUT: AnyValue(string_value="ro-unknown"), ATTEMPT: AnyValue(string_value="at-unknown")}
        body = request_of(ids_of(attempted), proto("known", 1, {}), proto("unknown", 2, text))
        status, _, _ = await post(client, body)
        note.value("status", status)
        await note("stored", client.query_spans(attempted.rollout_id))

    await both.same(scenario)


async def test_requests_at_the_edge_of_the_protocol(both: Both) -> None:
    """Wrong types and unreadable bodies are 400 with a status message, and both sides may compress."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        attempted = await client.start_rollout(1)
        body = request_of(ids_of(attempted), proto("s", 1, {}))
        await note("empty", post(client, b""))
        await note("compressed", post(client, gzip.compress(body), content_encoding="gzip"))
        await note("compressed answer", post(client, body, accept_encoding="gzip"))
        await note("parameter", post(client, body, content_type="application/x-protobuf; charset=utf-8"))
        for label, sent, media_type in (
            ("text", body, "text/plain"),
            ("upper case", body, "application/X-Protobuf"),
            ("unreadable", b"\xff\xff\xff", "application/x-protobuf"),
        ):
            status, answered, data = await post(client, sent, content_type=media_type)
            note.value(label, (status, answered, bool(Status.FromString(data).message)))
        await note("stored", client.query_spans(attempted.rollout_id))
        async with aiohttp.ClientSession(client.server_address_root) as session:
            for signal in ("metrics", "logs", "development/profiles"):
                async with session.post(f"/v1/{signal}", data=b"", headers=PROTOBUF) as answer:
                    note.value(signal, (answer.status, await answer.read()))

    await both.same(scenario)
