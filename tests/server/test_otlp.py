"""OTLP over HTTP: both encodings, compression, identity, numbers, what our model lacks, partial success, limits."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from agl_streams import bodies, otlp_wire
from agl_streams.config import Settings
from agl_streams.errors import InvalidRequest
from agl_streams.models import AttemptedRollout, Span
from agl_streams.server.routes_otlp import PROTOBUF
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.otlp_requests import ATTEMPT, ROLLOUT, SEQUENCE, as_json, export, identity, pairs, wire_span
from tests.server.support import Api, Reply

LIMIT = 1024 * 1024


async def send(api: Api, data: bytes | io.BytesIO, content_type: str = PROTOBUF.decode(), **headers: str) -> Reply:
    headers = {"accept-encoding": "identity"} | {name.replace("_", "-"): text for name, text in headers.items()}
    return await api.raw("/v1/traces", data, content_type, headers=headers)


async def export_to(api: Api, request: ExportTraceServiceRequest, encoding: str = "protobuf") -> Reply:
    if encoding == "json":
        return await send(api, as_json(request), "application/json")
    return await send(api, request.SerializeToString())


def partial(reply: Reply) -> tuple[int, str]:
    """How many spans an answer says were rejected, and why."""
    assert reply.status == 200
    if reply.headers["content-type"] == "application/json":
        told = reply.json["partialSuccess"]
        return int(told["rejectedSpans"]), told["errorMessage"]
    success = ExportTraceServiceResponse.FromString(reply.body).partial_success
    return success.rejected_spans, success.error_message


@pytest.fixture
async def attempted(direct: StreamStore) -> AttemptedRollout:
    """A rollout with an open attempt."""
    return await direct.start_rollout({"q": 1})


async def stored(store: StreamStore, attempted: AttemptedRollout) -> list[Span]:
    return list(await store.query_spans(attempted.rollout_id))


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
async def test_a_span_is_kept_whole(api: Api, direct: StreamStore, attempted: AttemptedRollout, encoding: str) -> None:
    """Every field of a span that the model has is stored, the same from both encodings."""
    span = wire_span(7, text="é", flag=True, count=3, share=0.5, many=["a", "b"], numbers=[1, 2], none=[])
    span.parent_span_id = b"\x00\xff" * 4
    span.kind = WireSpan.SPAN_KIND_CLIENT
    span.trace_state = "a=b"
    span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="broken"))
    span.events.add(name="event", time_unix_nano=1_700_000_000_750_000_000, attributes=pairs({"a": 1}))
    span.links.add(trace_id=b"\x02" * 16, span_id=b"\x03" * 8)
    span.links.add(trace_id=b"\x02" * 16, span_id=b"\x03" * 8, attributes=pairs({"b": "c"}))
    resource = {**identity(attempted), "service.name": "agent"}
    reply = await export_to(api, export((resource, [span]), schema_url="http://schema"), encoding)
    assert (reply.status, reply.body) == (200, b"{}" if encoding == "json" else b"")
    assert reply.headers["content-type"] == ("application/json" if encoding == "json" else "application/x-protobuf")
    (found,) = await stored(direct, attempted)
    assert (found.trace_id, found.span_id, found.parent_id) == ("0" * 31 + "1", "0" * 15 + "7", "00ff" * 4)
    assert (found.name, found.sequence_id, found.start_time, found.end_time) == (
        "span 7",
        1,
        1700000000.5,
        1700000001.0,
    )
    assert (found.status.status_code, found.status.description) == ("ERROR", "broken")
    assert found.attributes == {
        "text": "é", "flag": True, "count": 3, "share": 0.5, "many": ["a", "b"], "numbers": [1, 2], "none": [],
    }  # fmt: skip
    assert found.context is not None
    assert (found.context.span_id, found.context.is_remote, found.context.trace_state) == (found.span_id, False, {})
    assert found.parent is None
    assert [(event.name, event.attributes, event.timestamp) for event in found.events] == [
        ("event", {"a": 1}, 1700000000.75)
    ]
    assert [link.attributes for link in found.links] == [None, {"b": "c"}]
    assert found.links[0].context.trace_id == "02" * 16
    assert found.resource.attributes == resource
    assert found.resource.schema_url == "http://schema"
    assert not found.model_extra


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
async def test_what_the_model_lacks_is_flattened_or_kept_as_text(
    api: Api, direct: StreamStore, attempted: AttemptedRollout, encoding: str
) -> None:
    """Maps become dotted keys, mixed and nested lists JSON text, empty values empty text, bytes hex digits."""
    span = wire_span(1, **{
        "map": {"a": 1, "deep": {"b": [True]}}, "empty_map": {}, "null": None, "bytes": b"\x00\xff",
        "floats": [1, 2.5], "mixed": ["a", 1], "bools_and_ints": [1, True], "nested": [[1], {"c": None}],
        "nulls": [None, "x"], "byte_list": [b"\x01"],
    })  # fmt: skip
    assert (await export_to(api, export((identity(attempted), [span])), encoding)).body in (b"", b"{}")
    (found,) = await stored(direct, attempted)
    assert found.attributes == {
        "map.a": 1, "map.deep.b": [True], "empty_map": "{}", "null": "", "bytes": "00ff", "floats": [1.0, 2.5],
        "mixed": '["a",1]', "bools_and_ints": "[1,true]", "nested": '[[1],{"c":null}]', "nulls": '[null,"x"]',
        "byte_list": ["01"],
    }  # fmt: skip


async def test_numbers_that_json_lacks_stay_in_attributes(
    api: Api, direct: StreamStore, attempted: AttemptedRollout
) -> None:
    """NaN and infinity arrive as they were sent."""
    span = wire_span(1, a=float("inf"), b=[float("-inf"), 1.0])
    await export_to(api, export((identity(attempted), [span])))
    (found,) = await stored(direct, attempted)
    assert found.attributes == {"a": float("inf"), "b": [float("-inf"), 1.0]}


async def test_the_span_says_whose_it_is_before_its_resource(
    api: Api, direct: StreamStore, attempted: AttemptedRollout
) -> None:
    """Each identity attribute is looked for on the span first and on the resource then; ids become text."""
    other = await direct.start_attempt(attempted.rollout_id)
    await direct.enqueue_rollout(1, rollout_id="5")
    five = await direct.start_attempt("5")
    spans = [
        wire_span(1),
        wire_span(2, **{ATTEMPT: other.attempt.attempt_id}),
        wire_span(3, **{ROLLOUT: 5, ATTEMPT: five.attempt.attempt_id}),
    ]
    assert (await export_to(api, export((identity(attempted), spans)))).body == b""
    found = {span.name: (span.rollout_id, span.attempt_id) for span in await stored(direct, attempted)}
    assert found == {
        "span 1": (attempted.rollout_id, attempted.attempt.attempt_id),
        "span 2": (attempted.rollout_id, other.attempt.attempt_id),
    }
    (third,) = await direct.query_spans("5")
    assert third.attributes[ROLLOUT] == 5


async def test_numbers_are_kept_or_given(api: Api, direct: StreamStore, attempted: AttemptedRollout) -> None:
    """A whole number from zero up is kept; anything else is none, and the store gives the next ones in order."""
    given_numbers: list[Any] = [None, 7, "3", 0, -1, "x", True, "-2"]
    spans = [
        wire_span(place, **({} if number is None else {SEQUENCE: number}))
        for place, number in enumerate(given_numbers, start=1)
    ]
    assert (await export_to(api, export((identity(attempted), spans)))).body == b""
    numbers = {int(span.span_id, 16): span.sequence_id for span in await stored(direct, attempted)}
    assert numbers == {1: 8, 2: 7, 3: 3, 4: 0, 5: 9, 6: 10, 7: 11, 8: 12}


async def test_a_number_on_the_resource_is_shared(api: Api, direct: StreamStore, attempted: AttemptedRollout) -> None:
    """A resource's number holds for all its spans."""
    resource = {**identity(attempted), SEQUENCE: "4"}
    await export_to(api, export((resource, [wire_span(1), wire_span(2)])))
    assert [span.sequence_id for span in await stored(direct, attempted)] == [4, 4]


async def test_the_same_batch_twice_is_stored_once(api: Api, direct: StreamStore, attempted: AttemptedRollout) -> None:
    """An exporter that sends again gets the same success and adds nothing."""
    request = export((identity(attempted), [wire_span(number) for number in range(1, 6)]))
    for _ in range(2):
        assert (await export_to(api, request)).body == b""
    assert [span.sequence_id for span in await stored(direct, attempted)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
async def test_what_cannot_be_stored_is_rejected_alone(
    api: Api, direct: StreamStore, attempted: AttemptedRollout, encoding: str
) -> None:
    """Spans of nobody and of unknown attempts are counted with their reasons; the others of the batch are stored."""
    unknown = {ROLLOUT: "ro-x", ATTEMPT: "at-x"}
    request = export(
        (identity(attempted), [wire_span(1), wire_span(2, **{ATTEMPT: "at-y"})]),
        ({}, [wire_span(3), wire_span(4)]),
        (unknown, [wire_span(5)]),
        (identity(attempted), [wire_span(6)]),
    )
    count, reasons = partial(await export_to(api, request, encoding))
    assert count == 4
    for told in ("2 x no agentlightning.rollout_id and agentlightning.attempt_id", "at-y", "ro-x"):
        assert told in reasons
    assert [span.name for span in await stored(direct, attempted)] == ["span 1", "span 6"]


async def test_a_span_above_its_limit_is_rejected_alone(settings: Settings, direct: StreamStore) -> None:
    """A span that the store refuses does not take its batch with it."""
    attempted = await direct.start_rollout(1)
    spans = [wire_span(1), wire_span(2, text="x" * 5000), wire_span(3)]
    async with (
        serving(settings.model_copy(update={"max_span_bytes": 2000})) as url,
        aiohttp.ClientSession(url) as session,
    ):
        count, reasons = partial(await export_to(Api(session), export((identity(attempted), spans))))
    assert count == 1
    assert "the limit is 2,000" in reasons
    assert [span.name for span in await stored(direct, attempted)] == ["span 1", "span 3"]


async def test_a_span_of_odd_json_is_rejected_alone(api: Api, direct: StreamStore, attempted: AttemptedRollout) -> None:
    """In JSON every span is read by itself: wrong types and ids reject one, unknown fields reject none."""
    good = json.loads(as_json(export((identity(attempted), [wire_span(1, n=2**40)]))))
    span = good["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert span["attributes"][0]["value"]["intValue"] == str(2**40)
    bad: list[Any] = [
        5, None, {**span, "spanId": "zz"}, {**span, "name": 5}, {**span, "attributes": {}}, {**span, "links": [1]},
        {**span, "startTimeUnixNano": "soon"}, {**span, "events": [{"timeUnixNano": "x"}]},
    ]  # fmt: skip
    newer: dict[str, Any] = {**span, "spanId": "00000000000000aa", "flags": 256, "fromTheFuture": {"a": []}}
    good["resourceSpans"][0]["scopeSpans"][0]["spans"] = [span, *bad, newer]
    good["resourceSpans"].append({"resource": {"attributes": 5}, "scopeSpans": [{"spans": [span, span]}]})
    reply = await send(api, json.dumps(good).encode(), "application/json")
    assert partial(reply)[0] == len(bad) + 2
    assert [one.attributes for one in await stored(direct, attempted)] == [{"n": 2**40}, {"n": 2**40}]


@pytest.mark.parametrize(
    ("data", "content_type"),
    [(b"", "application/x-protobuf"), (b"", "application/json"), (b"{}", "application/json; charset=utf-8")],
)
async def test_nothing_is_a_success(api: Api, data: bytes, content_type: str) -> None:
    """An empty body is an empty request."""
    reply = await send(api, data, content_type)
    assert reply.status == 200
    assert reply.body in (b"", b"{}")


def zlib_raw(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def gzip_twice(data: bytes) -> bytes:
    return gzip.compress(data[:100]) + gzip.compress(data[100:])


COMPRESSED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("GZIP", gzip.compress),
    ("gzip", gzip_twice),
    ("deflate", zlib.compress),
    ("deflate", zlib_raw),
    ("identity", bytes),
]


@pytest.mark.parametrize(("encoding", "compress"), COMPRESSED)
async def test_bodies_may_be_compressed(
    api: Api, direct: StreamStore, attempted: AttemptedRollout, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    """gzip, joined gzip, deflate in both its forms, and none are read."""
    data = export((identity(attempted), [wire_span(number) for number in range(1, 40)])).SerializeToString()
    assert (await send(api, compress(data), content_encoding=encoding)).body == b""
    assert len(await stored(direct, attempted)) == 39


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"no gzip", "gzip"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-12], "gzip"),
        (b"no deflate", "deflate"),
        (b"\x0a\xff", ""),
        (gzip.compress(b"", mtime=0), "br"),
    ],
    ids=["no gzip", "cut gzip", "no deflate", "cut protobuf", "unknown encoding"],
)
async def test_bytes_that_are_no_request_are_400(api: Api, data: bytes, encoding: str) -> None:
    """Broken compression and broken protobuf are answered with a Status message that says so."""
    reply = await send(api, data, content_encoding=encoding)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/x-protobuf")
    assert status_message(reply).startswith(
        ("the body cannot be decompressed", "Unable to parse OTLP traces payload: ")
    )


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"resourceSpans":5}', b'{"resourceSpans":[{"scopeSpans":[5]}]}', b"\xff"]
)
async def test_json_of_another_shape_is_400(api: Api, data: bytes) -> None:
    """What is no request in JSON is told in JSON."""
    reply = await send(api, data, "application/json")
    assert reply.status == 400
    assert reply.json["message"].startswith("Unable to parse OTLP traces payload: ")


@pytest.mark.parametrize("content_type", ["text/plain", "Application/X-Protobuf", "application/protobuf", ""])
async def test_another_type_is_400(api: Api, content_type: str) -> None:
    """A type that is neither, case and all, is named in a Status message."""
    reply = await send(api, b"", content_type)
    assert (reply.status, reply.headers["content-type"]) == (400, "application/x-protobuf")
    assert status_message(reply) == (f"Unsupported Content-Type '{content_type}', expected 'application/x-protobuf'")


def status_message(reply: Reply) -> str:
    """The message of a ``google.rpc.Status`` with nothing else in it."""
    assert reply.body[0] == 0x12
    size, place, shift = 0, 1, 0
    while True:
        byte = reply.body[place]
        size |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            break
    assert len(reply.body) == place + size
    return reply.body[place:].decode()


@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip;q=0.5", "gzip;q=0"])
async def test_answers_are_compressed_for_who_names_gzip(api: Api, accepted: str) -> None:
    """Every answer, also an error, is gzip for a client that lists it."""
    for data, status in ((b"", 200), (b"\x0a\xff", 400)):
        reply = await send(api, data, accept_encoding=accepted)
        assert (reply.status, reply.headers["content-encoding"]) == (status, "gzip")
        assert bool(gzip.decompress(reply.body)) == (status == 400)
    assert "content-encoding" not in (await send(api, b"", accept_encoding="*")).headers


async def test_a_bomb_is_413(settings: Settings) -> None:
    """A small body that grows above the limit of a request is refused while it grows."""
    bomb = gzip.compress(b"\x00" * 20_000_000, mtime=0)
    assert len(bomb) < 30_000
    limits = settings.model_copy(update={"max_request_bytes": 9_000_000})
    async with serving(limits) as url, aiohttp.ClientSession(url) as session:
        reply = await send(Api(session), bomb, content_encoding="gzip")
        assert (reply.status, reply.headers["content-type"]) == (413, "application/x-protobuf")
        assert "9,000,000" in status_message(reply)
        assert (await send(Api(session), io.BytesIO(b"x" * 10_000_000))).status == 413


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs", "/v1/development/profiles"])
async def test_other_signals_are_not_kept(api: Api, path: str) -> None:
    """Metrics, logs and profiles are 501 with nothing else."""
    reply = await api.raw(path, b"abc", "application/x-protobuf")
    assert (reply.status, reply.body) == (501, b"")
    assert "content-type" not in reply.headers
    assert (await api.get(path)).status == 405


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=4), below, max_size=4),
    max_leaves=12,
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=6), PLAIN, max_size=6))
def test_any_attributes_make_a_span_in_both_encodings(attributes: dict[str, Any]) -> None:
    """Whatever values attributes have, the span is taken, the same from protobuf as from JSON, and reads back."""
    attributes = {key: plain for key, plain in attributes.items() if key not in (ROLLOUT, ATTEMPT, SEQUENCE)}
    request = export(({ROLLOUT: "ro-1", ATTEMPT: "at-1"}, [wire_span(1, **attributes)]))
    received = otlp_wire.from_protobuf(request.SerializeToString(), LIMIT)
    assert received.rejected == {}
    ((span,),) = received.unnumbered.values()
    ((again,),) = otlp_wire.from_json(as_json(request), LIMIT).unnumbered.values()
    assert again == span
    data = bodies.unpack(span.payload)
    assert Span.from_json(data).to_json() == data


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_broken_bytes_are_refused_or_read_and_never_a_fault(data: st.DataObject) -> None:
    """A request with bytes changed, cut or added is either read or refused as one that cannot be parsed."""
    request = export(({ROLLOUT: "ro-1", ATTEMPT: "at-1"}, [wire_span(1, a=[1, 2], b={"c": None})]))
    for whole, read in (
        (request.SerializeToString(), otlp_wire.from_protobuf),
        (as_json(request), otlp_wire.from_json),
    ):
        body = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(body) - 1))
            body[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
            if not body:
                break
        with contextlib.suppress(InvalidRequest):
            read(bytes(body), LIMIT)
