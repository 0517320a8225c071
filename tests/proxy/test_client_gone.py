"""A client that hangs up, over a real socket: its call is cancelled, and what there was is stored as incomplete."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

import pytest

from agl_proxy import checks
from agl_streams import semconv
from tests.proxy.support import CHAT, REQUEST, STREAM, Proxy
from tests.support.engine_standin import Behaviour, Exchange, hang, stall_after
from tests.support.waiting import until


async def connect(proxy: Proxy, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain connection that has sent a chat call."""
    server = urlsplit(proxy.url)
    reader, writer = await asyncio.open_connection(server.hostname, server.port)
    data = json.dumps(body).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    await writer.drain()
    return reader, writer


def close(writer: asyncio.StreamWriter) -> None:
    """Hang up politely (FIN)."""
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Hang up without a word more (RST)."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


HANG_UP = pytest.mark.parametrize("hang_up", [close, reset], ids=["FIN", "RST"])


@HANG_UP
async def test_a_client_that_leaves_a_stream_cancels_it(proxy: Proxy, hang_up: Any) -> None:
    """In the middle of a stream: the server's call is cancelled, the tokens so far are stored as ``client_gone``."""
    proxy.engine.behave(stall_after(3))
    reader, writer = await connect(proxy, STREAM)
    await reader.readuntil(b"\n\ndata: ")
    hang_up(writer)
    await until(lambda: proxy.engine.cancelled == 1, what="the server's call to be cancelled", timeout_s=5)
    assert await proxy.reason() == checks.CLIENT_GONE
    call = proxy.store.only_call()
    assert call[semconv.CALL_PROMPT_TOKEN_IDS] == [1, 87, 505, 201]
    assert call[semconv.CALL_STREAMED] is True
    assert (proxy.engine.running, proxy.app.capture.in_flight) == (0, 0)


@HANG_UP
@pytest.mark.parametrize("body", [REQUEST, STREAM], ids=["whole", "stream"])
async def test_a_client_that_leaves_before_the_answer_cancels_it(
    proxy: Proxy, body: dict[str, Any], hang_up: Any
) -> None:
    """Before the first byte: the server's call is cancelled, and an empty capture is stored as ``client_gone``."""
    proxy.engine.behave(hang)
    _, writer = await connect(proxy, body)
    await until(lambda: proxy.engine.running == 1, what="the call to reach the server")
    hang_up(writer)
    await until(lambda: proxy.engine.cancelled == 1, what="the server's call to be cancelled", timeout_s=5)
    assert await proxy.reason() == checks.CLIENT_GONE
    await until(lambda: proxy.app.capture.in_flight == 0, what="no call in flight")


async def test_a_client_that_leaves_while_its_request_is_sent_is_no_call(proxy: Proxy) -> None:
    """Half a request is nobody's call: nothing is admitted, sent or stored."""
    server = urlsplit(proxy.url)
    _, writer = await asyncio.open_connection(server.hostname, server.port)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: proxy\r\ncontent-length: 100\r\n\r\nhalf".encode())
    await writer.drain()
    await until(lambda: proxy.app.capture.in_flight == 1, what="the request to arrive")
    writer.close()
    await until(lambda: proxy.app.capture.in_flight == 0, what="no call in flight")
    assert proxy.store.admitted == 0
    assert proxy.engine.requests == []


def pause_before_the_end(reached: asyncio.Event, go_on: asyncio.Event) -> Behaviour:
    """A stream that rests after its finish reason, before usage and terminator."""

    async def behaviour(exchange: Exchange) -> None:
        *events, usage, terminator = exchange.frames()
        await exchange.begin()
        for event in events:
            await exchange.write(event)
        reached.set()
        await go_on.wait()
        await exchange.write(usage)
        await exchange.write(terminator)

    return behaviour


async def test_a_client_that_leaves_at_the_finish_reason_has_a_complete_capture(proxy: Proxy) -> None:
    """Many clients stop reading there: usage and terminator are still waited for, a moment long."""
    reached, go_on = asyncio.Event(), asyncio.Event()
    proxy.engine.behave(pause_before_the_end(reached, go_on))
    reader, writer = await connect(proxy, STREAM)
    await reached.wait()
    await reader.readuntil(b'"finish_reason":"stop"')
    writer.close()
    go_on.set()
    assert await proxy.reason() is None


async def test_a_server_that_never_ends_after_the_finish_reason_is_cancelled(proxy: Proxy) -> None:
    """The moment after the finish reason ends, too: then the call is cancelled as any other."""
    proxy.engine.behave(pause_before_the_end(asyncio.Event(), asyncio.Event()))
    reader, writer = await connect(proxy, STREAM)
    await reader.readuntil(b'"finish_reason":"stop"')
    writer.close()
    await until(lambda: proxy.engine.cancelled == 1, what="the server's call to be cancelled")
    assert await proxy.reason() == checks.CLIENT_GONE


async def test_a_client_that_leaves_while_the_span_is_stored_changes_nothing(proxy: Proxy) -> None:
    """The answer was whole when its client left: the span is stored once, and complete."""
    proxy.store.gate.clear()
    _, writer = await connect(proxy, REQUEST)
    await until(lambda: proxy.store.adding == 1, what="the span on its way")
    writer.close()
    await writer.wait_closed()
    proxy.store.gate.set()
    assert await proxy.reason() is None
    assert proxy.store.adding == 1


async def test_a_client_of_an_unrecorded_call_that_leaves_cancels_it(proxy: Proxy) -> None:
    """Calls that only pass are cancelled as well."""
    server = urlsplit(proxy.url)
    _, writer = await asyncio.open_connection(server.hostname, server.port)
    writer.write(f"GET {CHAT.replace('chat/completions', 'hang')} HTTP/1.1\r\nhost: proxy\r\n\r\n".encode())
    await until(lambda: proxy.engine.running == 1, what="the call to reach the server")
    writer.close()
    await until(lambda: proxy.engine.cancelled == 1, what="the server's call to be cancelled")
    assert proxy.store.spans == []
