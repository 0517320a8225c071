"""OpenTelemetry's traces over HTTP: ``POST /v1/traces`` in protobuf or JSON. Metrics and logs are not kept.

A success with nothing rejected is an empty message. What was rejected is told with its count and reasons; spans that
the store has already are no rejection, so an exporter may send a batch twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from agl_streams import otlp_wire
from agl_streams.errors import AglError, InvalidRequest, NotFound
from agl_streams.logger import get_logger
from agl_streams.otlp_size import check_messages
from agl_streams.otlp_wire import Received
from agl_streams.server.answers import plain
from agl_streams.server.asgi import JSON, Answer
from agl_streams.server.bodies import MAX_CONTAINERS, SMALL_BYTES, Crowded, TooLong, check_containers
from agl_streams.server.call import Call
from agl_streams.server.compression import decompressed, gzipped
from agl_streams.server.faults import fault_of
from agl_streams.server.table import Route
from agl_streams.store import StreamStore

PROTOBUF: Final = b"application/x-protobuf"
_MESSAGE_FIELD: Final = b"\x12"
"""Field 2 of ``google.rpc.Status``, its ``message``, as a tag on the wire: the only field that is set."""
_LOW_BITS: Final = 0x7F
_VARINT_BITS: Final = 7

_log = get_logger()


async def traces(call: Call) -> Answer:
    """Store the spans of an export request."""
    media_type = _media_type(call)
    try:
        data = await call.reader.read(call.request)
        encoding = (call.request.text_header(b"content-encoding") or "").strip().lower()
        received = await _parse(media_type, await decompressed(data, encoding, call.reader), call)
        await _store(call.store, received)
    except (AglError, TooLong, Crowded) as error:
        return _fault(error, media_type or PROTOBUF, call)
    if received.rejected:
        _log.warning("otlp_spans_rejected", reasons=received.rejected)
    return _maybe_gzipped(Answer(_success(received, media_type), media_type=media_type), call)


async def not_kept(call: Call) -> Answer:
    """Say that this signal is not kept."""
    return Answer(b"", 501, media_type=None)


def _media_type(call: Call) -> bytes | None:
    """The type of request and answer: the part before the parameters, exactly as written; None for any other."""
    given = (call.request.header(b"content-type") or b"").partition(b";")[0].strip()
    return given if given in (PROTOBUF, JSON) else None


async def _parse(media_type: bytes | None, data: bytes, call: Call) -> Received:
    if media_type == PROTOBUF:
        return await _read(_from_protobuf, data, call)
    if media_type == JSON:
        check_containers(data)
        return await _read(otlp_wire.from_json, data, call)
    given = call.request.text_header(b"content-type") or ""
    raise InvalidRequest(f"Unsupported Content-Type '{given}', expected 'application/x-protobuf'")


def _from_protobuf(data: bytes, max_span_bytes: int) -> Received:
    if len(data) > SMALL_BYTES:  # counting takes as long as reading: a small body cannot hold too many
        check_messages(data, MAX_CONTAINERS)
    return otlp_wire.from_protobuf(data, max_span_bytes)


async def _read(read: Callable[[bytes, int], Received], data: bytes, call: Call) -> Received:
    """Read a body; a large one beside the event loop, span by span: it may hold millions, and others are served too."""
    limit = call.store.settings.max_span_bytes
    return read(data, limit) if len(data) <= SMALL_BYTES else await asyncio.to_thread(read, data, limit)


async def _store(store: StreamStore, received: Received) -> None:
    """Store attempt by attempt; what cannot be stored is rejected, unless the store itself is away."""
    # First those that have a number: they raise the counter from which the others are numbered.
    for groups in (received.numbered, received.unnumbered):
        for (rollout_id, attempt_id), spans in groups.items():
            try:
                await store.append_encoded(rollout_id, attempt_id, spans)
            except (NotFound, InvalidRequest) as error:  # of the ids; nothing was stored
                received.reject(str(error), len(spans))


def _success(received: Received, media_type: bytes | None) -> bytes:
    count = sum(received.rejected.values())
    reasons = "; ".join(f"{number} x {reason}" for reason, number in received.rejected.items())
    if media_type == JSON:
        partial: dict[str, Any] = {"partialSuccess": {"rejectedSpans": str(count), "errorMessage": reasons}}
        return plain(partial if count else {})
    if not count:
        return b""
    told = ExportTracePartialSuccess(rejected_spans=count, error_message=reasons)
    return ExportTraceServiceResponse(partial_success=told).SerializeToString()


def _fault(error: Exception, media_type: bytes, call: Call) -> Answer:
    """The answer that this error has everywhere, with OTLP's ``Status`` as its body."""
    fault = fault_of(error, call.request, call.store.settings.max_request_bytes)
    body = plain({"message": fault.detail}) if media_type == JSON else _status_message(fault.detail)
    return _maybe_gzipped(Answer(body, fault.status, media_type, fault.headers), call)


def _status_message(text: str) -> bytes:
    data = text.encode()
    length, size = bytearray(), len(data)
    while size > _LOW_BITS:
        length.append(size & _LOW_BITS | _LOW_BITS + 1)
        size >>= _VARINT_BITS
    length.append(size)
    return _MESSAGE_FIELD + bytes(length) + data


def _maybe_gzipped(answer: Answer, call: Call) -> Answer:
    accepted = (call.request.text_header(b"accept-encoding") or "").split(",")
    if all(token.partition(";")[0].strip().lower() != "gzip" for token in accepted):
        return answer
    headers = [*answer.headers, (b"content-encoding", b"gzip")]
    return Answer(gzipped(answer.body), answer.status, answer.media_type, headers)


TRACES: Final = (
    Route(
        method="POST", path="/v1/traces", handler=traces, tag="opentelemetry",
        summary="Store spans: OTLP/HTTP in protobuf or JSON, plain, gzip or deflate",
    ),
    *(
        Route(
            method="POST", path=path, handler=not_kept, status=501, tag="opentelemetry",
            summary="Not kept: only traces are",
        )
        for path in ("/v1/metrics", "/v1/logs", "/v1/development/profiles")
    ),
)  # fmt: skip
