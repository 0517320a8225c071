"""OpenTelemetry's own exporter against the server, the same spans in JSON, and its requests with broken bytes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agl_streams.models import AttemptedRollout
from agl_streams.store import StreamStore
from tests.server.otlp_requests import as_json, identity
from tests.server.support import Api

PLAIN = {"accept-encoding": "identity"}
PROTOBUF = "application/x-protobuf"
MUTATIONS = 400


def recorded(attempted: AttemptedRollout) -> Sequence[ReadableSpan]:
    """Three nested spans of an attempt as the SDK records them, with all that a span may have."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({**identity(attempted), "service.name": "é"}, "https://schema/1"))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("test", "1")
    with tracer.start_as_current_span("outer", kind=trace.SpanKind.CLIENT) as outer:
        outer.set_attributes({"s": "é", "b": True, "i": 3, "f": 1.0, "list": ["a", "b"], "ints": [1, 2], "none": []})
        link = trace.Link(outer.get_span_context(), {"l": 1})
        with tracer.start_as_current_span("inner", links=[link]) as inner:
            inner.add_event("event", {"e": 1.5})
            with tracer.start_as_current_span("innermost"):
                inner.record_exception(ValueError("no"))
            inner.set_status(trace.StatusCode.ERROR, "went wrong")
    provider.shutdown()
    return memory.get_finished_spans()


async def stored(store: StreamStore, attempted: AttemptedRollout) -> list[dict[str, Any]]:
    """The spans of a rollout without what says whose they are."""
    spans = [json.loads(span.to_json()) for span in await store.query_spans(attempted.rollout_id, sort_by="name")]
    for span in spans:
        assert span.pop("rollout_id") == attempted.rollout_id
        assert span.pop("attempt_id") == attempted.attempt.attempt_id
        for key in identity(attempted):
            del span["resource"]["attributes"][key]
    return spans


@pytest.mark.parametrize("compression", list(Compression))
async def test_the_exporter_of_the_sdk_is_served_and_json_says_the_same(
    api: Api, server_url: str, direct: StreamStore, compression: Compression
) -> None:
    """What the exporter sends is stored once however often it is sent, and in JSON it makes equal spans."""
    first, second = await direct.start_rollout(1), await direct.start_rollout(2)
    spans = recorded(first)
    exporter = OTLPSpanExporter(endpoint=f"{server_url}/v1/traces", compression=compression)
    for _ in range(2):
        assert await asyncio.to_thread(exporter.export, spans) is SpanExportResult.SUCCESS
    exporter.shutdown()
    by_protobuf = await stored(direct, first)
    assert [span["name"] for span in by_protobuf] == ["inner", "innermost", "outer"]

    body = as_json(encode_spans(spans))
    for key, text in identity(first).items():
        body = body.replace(text.encode(), identity(second)[key].encode())
    assert (await api.raw("/v1/traces", body, headers=PLAIN)).body == b"{}"
    assert await stored(direct, second) == by_protobuf


async def test_broken_bytes_store_a_whole_batch_or_none_of_it(api: Api, direct: StreamStore) -> None:
    """Of a real request with broken bytes every span is stored or counted as rejected, or it is refused as a whole."""
    attempted = await direct.start_rollout(1)
    request = encode_spans(recorded(attempted))
    taken = 0
    for whole, media_type in ((request.SerializeToString(), PROTOBUF), (as_json(request), "application/json")):
        for _ in range(MUTATIONS // 2):
            body = broken(whole)
            before = await span_ids(direct, attempted)
            reply = await api.raw("/v1/traces", body, media_type, headers=PLAIN)
            after = await span_ids(direct, attempted)
            assert reply.status in (200, 400), body
            assert before <= after
            if reply.status == 400:
                assert after == before, body
            elif media_type == PROTOBUF:
                sent = ids_in(body)
                rejected = ExportTraceServiceResponse.FromString(reply.body).partial_success.rejected_spans
                assert after - before <= sent, body
                assert rejected or sent <= after, body
                taken += not rejected
    assert taken


def broken(whole: bytes) -> bytes:
    """A body with some bytes changed; which, the seed of the test run decides."""
    body = bytearray(whole)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(body))
        body[place : place + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
    return bytes(body)


def ids_in(body: bytes) -> set[str]:
    """The ids of the spans in a request."""
    try:
        groups = ExportTraceServiceRequest.FromString(body).resource_spans
    except DecodeError:
        raise AssertionError(f"the server has read what cannot be read: {body!r}") from None
    spans = [span for group in groups for scope in group.scope_spans for span in scope.spans]
    return {span.span_id.hex().rjust(16, "0") for span in spans}


async def span_ids(store: StreamStore, attempted: AttemptedRollout) -> set[str]:
    """The ids of the spans that are stored."""
    return {span.span_id for span in await store.query_spans(attempted.rollout_id)}
