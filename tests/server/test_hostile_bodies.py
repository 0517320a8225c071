"""Bodies made to be slow: what would hold a process for seconds is refused unread, or read while others are served."""

from __future__ import annotations

import asyncio
import gc
import io

import aiohttp
import pytest
from google.protobuf.message import Message

from agl_streams.config import Settings
from agl_streams.errors import InvalidRequest
from agl_streams.otlp_size import check_messages
from agl_streams.server.bodies import MAX_CONTAINERS
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.otlp_requests import export, identity, wire_span
from tests.server.support import Api, Reply, span_json

MANY = MAX_CONTAINERS + 1
DEEP = b"[" * MANY + b"]" * MANY
EMPTY = b",".join([b"{}"] * MANY)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("queues/rollouts/enqueue", DEEP),
        ("queues/rollouts/enqueue", b'{"rollouts":[%b]}' % EMPTY),
        ("spans", b'{"events":[%b]}' % EMPTY),
        ("spans/batch", b'{"spans":[%b]}' % EMPTY),
        ("resources", b'{"a":[%b]}' % EMPTY),
        ("/v1/traces", b'{"resourceSpans":[{"scopeSpans":[{"spans":[%b]}]}]}' % EMPTY),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
async def test_millions_of_containers_are_refused_unread(api: Api, path: str, body: bytes) -> None:
    """A body of more lists and objects than any honest one has is 400 on every route that reads JSON."""
    reply = await api.raw(path, io.BytesIO(body), headers={"accept-encoding": "identity"})
    assert reply.status == 400
    assert "at most 2,000,000 lists and objects" in reply.body.decode()


async def test_millions_of_messages_are_refused_unread(api: Api) -> None:
    """As protobuf they are small, two bytes each, and read they would take two gigabytes."""
    reply = await send_traces(api, spans_of(b"\x12\x00" * MANY))
    assert reply.status == 400
    assert b"at most 2,000,000 messages" in reply.body


async def test_a_value_within_values_without_end_is_refused(api: Api) -> None:
    """Lists in lists, deeper than the reader goes: the request is one that cannot be parsed."""
    value = b""
    for _ in range(2_000):
        value = b"\x0a" + varint(len(value)) + value  # the element of a list
        value = b"\x2a" + varint(len(value)) + value  # a value that is a list
    pair = b"\x12" + varint(len(value)) + value
    span = b"\x4a" + varint(len(pair)) + pair
    reply = await send_traces(api, spans_of(b"\x12" + varint(len(span)) + span))
    assert reply.status == 400
    assert b"Unable to parse OTLP traces payload" in reply.body


def test_messages_are_counted_as_the_reader_finds_them() -> None:
    """At the limit a body is let pass, one below it is refused: nothing is counted twice or overlooked."""
    request = export(({"a": 1, "b": [1, 2]}, [wire_span(1, a={"b": [1.5, "x", None]}, c=True), wire_span(2)]))
    count = messages_in(request)
    data = request.SerializeToString()
    check_messages(data, count)
    with pytest.raises(InvalidRequest, match=f"at most {count - 1} messages"):
        check_messages(data, count - 1)
    for end in range(len(data)):
        check_messages(data[:end], count)  # a body that is cut off is no endless one


def messages_in(message: Message) -> int:
    """The messages below one that protobuf has read."""
    found = 0
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            below = list(value) if descriptor.is_repeated else [value]
            found += len(below) + sum(messages_in(one) for one in below)
    return found


def spans_of(spans: bytes) -> bytes:
    """A request of one resource and scope with these encoded spans."""
    scope = b"\x12" + varint(len(spans)) + spans
    return b"\x0a" + varint(len(scope)) + scope


async def test_others_are_served_while_millions_of_spans_are_read(server_url: str) -> None:
    """A million spans of nobody in two megabytes are rejected one by one, and other callers are answered meanwhile."""
    hostile = spans_of(b"\x12\x00" * 1_000_000)
    async with aiohttp.ClientSession(server_url, auto_decompress=False) as session:
        api = Api(session)
        sending = asyncio.create_task(send_traces(api, hostile))
        answered = 0
        while not sending.done():
            assert (await api.get("/health")).status == 200
            answered += 1
        assert (await sending).status == 200
        assert b"1000000 x no agentlightning.rollout_id" in (await sending).body
        assert answered > 20


async def send_traces(api: Api, data: bytes) -> Reply:
    """An export request; the answer is not compressed."""
    plain = {"accept-encoding": "identity"}
    return await api.raw("/v1/traces", io.BytesIO(data), "application/x-protobuf", headers=plain)


def varint(number: int) -> bytes:
    """A length as protobuf writes it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


async def test_a_large_body_is_as_good_as_a_small_one(api: Api, store: StreamStore) -> None:
    """What is above the size that is read with care is stored whole, by either route, and memory is collected again."""
    attempted = await store.start_rollout(1)
    large = "x" * 300_000
    assert (await api.post("spans", span_json(attempted, attributes={"text": large}))).status == 201
    sent = export((identity(attempted), [wire_span(number, text=large) for number in (1, 2)])).SerializeToString()
    assert (await send_traces(api, sent)).body == b""
    found = await store.query_spans(attempted.rollout_id)
    assert [span.attributes["text"] == large for span in found] == [True] * 3
    assert (await api.raw("spans", b"[" + b"0," * 300_000 + b"0]")).status == 422
    assert gc.isenabled()


async def test_what_is_too_large_is_told_so_whatever_else_is_wrong(settings: Settings) -> None:
    """An input with NaN that is above its limit as well is refused for its size, and nothing is stored."""
    small = settings.model_copy(update={"max_input_bytes": 1000})
    async with serving(small) as url, aiohttp.ClientSession(url) as session:
        api = Api(session)
        body = b'{"rollouts":[{"input":[NaN%b]}]}' % (b",1" * 2000)
        reply = await api.raw("queues/rollouts/enqueue", body)
        assert (reply.status, reply.headers["x-error"]) == (400, "TooLarge")
        assert (await api.get("statistics")).json["total_rollouts"] == 0
