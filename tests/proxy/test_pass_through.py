"""What a client gets through the proxy is what the inference server sent, when it sent it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agl_streams import semconv
from tests.proxy.support import ATTEMPT, CHAT, REQUEST, ROLLOUT, STREAM, Proxy, served
from tests.support.engine_standin import TOKENS, EngineStandin, Exchange, frames, trickle, whole_answer

PREFIX = f"/rollout/{ROLLOUT}/attempt/{ATTEMPT}"
ASKED: dict[str, Any] = {"return_token_ids": True, "logprobs": True}
ASKED_STREAM: dict[str, Any] = {**ASKED, "stream_options": {"include_usage": True}}


async def test_a_whole_answer_passes_byte_for_byte(proxy: Proxy) -> None:
    """The bytes, type and length of an answer in one piece are the server's."""
    reply = await proxy.post(REQUEST)
    expected = whole_answer({**REQUEST, **ASKED}, TOKENS)
    assert (reply.status, reply.body) == (200, expected)
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == str(len(expected))


async def test_a_stream_passes_byte_for_byte(proxy: Proxy) -> None:
    """A client that asks for usage gets exactly the stream that the server sent."""
    reply = await proxy.post({**STREAM, "stream_options": {"include_usage": True}})
    assert reply.body == b"".join(frames({**STREAM, **ASKED, **ASKED_STREAM}, TOKENS))
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_only_the_usage_event_is_taken_out(proxy: Proxy) -> None:
    """A client that did not ask for usage gets the stream without the usage-only event, and the span has the usage."""
    reply = await proxy.post(STREAM)
    sent = frames({**STREAM, **ASKED, **ASKED_STREAM}, TOKENS)
    assert reply.body == b"".join([*sent[:-2], sent[-1]])
    assert (await proxy.stored())[semconv.GEN_AI_USAGE_OUTPUT_TOKENS] == len(TOKENS)


async def test_the_first_event_arrives_before_the_last_is_made(proxy: Proxy) -> None:
    """The server makes each event only after the client has the one before: nothing is buffered on the way."""
    received = bytearray()
    sent = frames({**STREAM, **ASKED, "stream_options": {"include_usage": True}}, TOKENS)
    arrived = asyncio.Event()

    async def passed(number: int) -> None:
        if number < len(sent) - 1:  # the terminator alone waits, for the span
            while len(received) < sum(map(len, sent[: number + 1])):
                arrived.clear()
                await arrived.wait()

    proxy.engine.behave(trickle(passed))
    body = json.dumps({**STREAM, "stream_options": {"include_usage": True}})
    async with proxy.client.post(proxy.url + CHAT, data=body) as response:
        async for piece in response.content.iter_any():
            received += piece
            arrived.set()
    assert bytes(received) == b"".join(sent)


async def test_the_request_keeps_what_the_client_sent(proxy: Proxy) -> None:
    """The server gets the client's fields and headers, and the fields that the capture needs."""
    extra = {"seed": 7, "temperature": 0.25, "tools": [{"type": "function"}], "unknown": {"deep": [1, None]}}
    await proxy.post({**REQUEST, **extra}, authorization="Bearer k", **{"x-request-id": "r-1"})
    assert proxy.engine.requests == [{**REQUEST, **extra, **ASKED}]
    (headers,) = proxy.engine.headers
    assert headers["authorization"] == "Bearer k"
    assert headers["x-request-id"] == "r-1"
    assert headers["accept-encoding"] == "identity"


async def test_headers_of_the_answer_pass(proxy: Proxy) -> None:
    """What the server says in headers reaches the client, and the proxy adds none."""

    async def with_header(exchange: Exchange) -> None:
        await exchange.speak()
        assert exchange.response is not None
        exchange.response.headers["x-request-id"] = "abc"

    proxy.engine.behave(with_header)
    reply = await proxy.post(REQUEST)
    assert set(reply.headers) == {
        "content-type",
        "content-length",
        "x-request-id",
        "date",
        "server",
    }
    assert reply.headers["server"].startswith("Python")


async def test_a_large_request_passes(proxy: Proxy) -> None:
    """A prompt of several megabytes reaches the server whole."""
    text = "x" * 3_000_000
    reply = await proxy.post({**REQUEST, "messages": [{"role": "user", "content": text}]})
    assert reply.status == 200
    assert proxy.engine.requests[0]["messages"][0]["content"] == text


@pytest.mark.parametrize("path", ["/v1/models", "/v1/embeddings?x=%2F", "/tokenize", "/v1/models/a%2Fb"])
async def test_other_paths_pass_unrecorded(proxy: Proxy, path: str) -> None:
    """Paths that sample nothing pass with their query and escapes, and leave no span."""
    reply = (
        await proxy.post(b'{"q": 1}', path=PREFIX + path) if path != "/v1/models" else await proxy.get(PREFIX + path)
    )
    assert reply.status == 200
    if path != "/v1/models":
        assert json.loads(reply.body) == {"method": "POST", "path": path, "body": '{"q": 1}'}
    assert proxy.store.admitted == 0
    assert proxy.store.spans == []


async def test_one_connection_serves_many_calls(proxy: Proxy) -> None:
    """Calls one after the other reuse the connection to the server."""
    for body in (REQUEST, STREAM, REQUEST, STREAM):
        await proxy.post(body)
    assert len(proxy.engine.peers) == 1


async def test_strip_hides_what_the_client_did_not_ask_for(engine: EngineStandin) -> None:
    """With ``strip`` a client sees the answer as if nothing had been added, and the span is complete all the same."""
    async with served(engine, strip=True) as proxy:
        reply = await proxy.post(REQUEST)
        assert reply.body == whole_answer(REQUEST, TOKENS)
        assert reply.headers["content-length"] == str(len(reply.body))
        assert await proxy.reason() is None


async def test_strip_hides_it_in_streams_too(engine: EngineStandin) -> None:
    """With ``strip`` each event of a stream is as if nothing had been added."""
    async with served(engine, strip=True) as proxy:
        reply = await proxy.post(STREAM)
        events = [json.loads(line[6:]) for line in reply.body.split(b"\n\n") if line.startswith(b"data: {")]
        plain = [json.loads(line[6:]) for line in frames(STREAM, TOKENS) if line.startswith(b"data: {")]
        plain[-1].pop("system_fingerprint")  # comes with the usage event, when there is one
        assert events == plain
        assert await proxy.reason() is None


async def test_strip_leaves_what_was_asked_for(engine: EngineStandin) -> None:
    """With ``strip`` a client that asks for ids and log-probabilities itself gets the server's bytes."""
    async with served(engine, strip=True) as proxy:
        assert (await proxy.post({**REQUEST, **ASKED})).body == whole_answer({**REQUEST, **ASKED}, TOKENS)


async def test_the_proxy_says_that_it_is_alive(proxy: Proxy) -> None:
    """``/health`` answers by itself, whatever the inference server does."""
    reply = await proxy.get("/health")
    assert json.loads(reply.body) == {"status": "ok", "in_flight": 0}
