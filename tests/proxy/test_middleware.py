"""The middleware around any ASGI application, as it stands in front of another server's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from agl_proxy import capture, checks, recorder
from agl_proxy.answer import Answer
from agl_proxy.app import CaptureMiddleware, ProxyOptions
from agl_proxy.asgi import Message, Receive, Scope, Send
from agl_proxy.capture import StreamCapture
from agl_streams import semconv
from tests.proxy.streams import complete_stream, encode, sampled
from tests.proxy.support import CHAT, REQUEST, STREAM, MemoryStore, served
from tests.support.engine_standin import TOKENS, EngineStandin, Exchange, hang, say, whole_answer
from tests.support.waiting import until

App = Callable[[Scope, Receive, Send], Any]
EVENT_STREAM = [(b"content-type", b"text/event-stream")]


async def call(app: App, store: MemoryStore, body: dict[str, Any] | None = None) -> list[Message]:
    """One chat call through a middleware around ``app``; the messages that the client's server got."""
    middleware = CaptureMiddleware(app, store, ProxyOptions(upstream="http://engine:8000"))
    data = json.dumps(body or REQUEST).encode()
    sent: list[Message] = []
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            await asyncio.get_running_loop().create_future()
        given = True
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"content-type", b"application/json")]}
    await middleware(scope, receive, send)
    return sent


def body_of(messages: list[Message]) -> bytes:
    """The body of an answer."""
    return b"".join(message.get("body", b"") for message in messages)


async def test_it_records_what_another_application_answers() -> None:
    """The application sees the plain path and the shaped body, and its answer is captured."""
    seen: dict[str, Any] = {}

    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        seen.update(path=scope["path"], raw_path=scope["raw_path"])
        seen["body"] = json.loads((await receive())["body"])
        answer = whole_answer(seen["body"], TOKENS)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer[:50], "more_body": True})
        await send({"type": "http.response.body", "body": answer[50:]})

    store = MemoryStore()
    messages = await call(engine, store)
    assert seen["path"] == "/v1/chat/completions"
    assert seen["raw_path"] == b"/v1/chat/completions"
    assert seen["body"] == {**REQUEST, "return_token_ids": True, "logprobs": True}
    assert body_of(messages) == whole_answer(seen["body"], TOKENS)
    assert store.only_call()[semconv.CALL_COMPLETE] is True


async def test_each_event_passes_in_the_message_it_came_in() -> None:
    """An application that sends one message per event has them passed one by one."""
    events = [encode([event]) for event in complete_stream()]

    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
        for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    messages = await call(engine, MemoryStore(), {**STREAM, "stream_options": {"include_usage": True}})
    assert [message["body"] for message in messages[1:]] == [*events, b""]


async def test_an_application_that_fails_leaves_a_span() -> None:
    """An exception before the answer is a 500 for the client, a reason for the span, and goes on to the server."""

    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("out of paper")

    store = MemoryStore()
    with pytest.raises(RuntimeError, match="out of paper"):
        await call(engine, store)
    assert store.only_call()[semconv.CALL_INCOMPLETE_REASON] == checks.PROXY_ERROR


async def test_other_scopes_are_not_ours() -> None:
    """What is not HTTP goes to the application untouched."""
    seen: list[str] = []

    async def engine(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        pass

    await CaptureMiddleware(engine, MemoryStore(), ProxyOptions(upstream="http://engine"))(
        {"type": "lifespan"}, receive, send
    )
    assert seen == ["lifespan"]


async def test_a_call_cut_off_by_a_stop_is_stored_as_incomplete(engine: EngineStandin) -> None:
    """A server that stops by force cancels its calls: the span says so, and closing the proxy waits for it."""
    store = MemoryStore()
    async with served(engine, store) as proxy:
        engine.behave(hang)
        asked = asyncio.create_task(proxy.post(REQUEST))
        await until(lambda: engine.running == 1, what="the call to reach the server")
        for task in list(proxy.app.capture.running):
            task.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert await proxy.reason() == checks.PROXY_STOPPED


async def test_an_event_without_end_is_cut_off(engine: EngineStandin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose event grows beyond the limit ends with an error, and the server's call is cancelled."""
    monkeypatch.setattr(capture, "MAX_EVENT_BYTES", 10_000)

    async def endless(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.write(exchange.frames()[0] + b"data: ")
        while True:
            await exchange.write(b"x" * 1_000)

    async with served(engine) as proxy:
        engine.behave(endless)
        reply = await proxy.post(STREAM)
        assert "more than 10,000 bytes" in reply.error["message"]
        assert await proxy.reason() == checks.TOO_LARGE
        await until(lambda: engine.cancelled == 1, what="the server's call to be cancelled")


async def test_an_answer_without_end_is_cut_off(engine: EngineStandin, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in one piece that grows beyond the limit is a 502, and the server's call is cancelled."""
    monkeypatch.setattr(recorder, "MAX_ANSWER_BYTES", 10_000)

    async def endless(exchange: Exchange) -> None:
        await exchange.begin("application/json")
        while True:
            await exchange.write(b"x" * 1_000)

    async with served(engine) as proxy:
        engine.behave(endless)
        reply = await proxy.post(REQUEST)
        assert reply.status == 502
        assert await proxy.reason() == checks.TOO_LARGE
        await until(lambda: engine.cancelled == 1, what="the server's call to be cancelled")


async def test_what_follows_the_terminator_passes(engine: EngineStandin) -> None:
    """Bytes behind ``[DONE]`` reach the client, and change nothing in the capture."""

    async def talkative(exchange: Exchange) -> None:
        await say(*exchange.frames(), b": bye\n\n", encode([sampled(0, [9])]))(exchange)

    async with served(engine) as proxy:
        engine.behave(talkative)
        reply = await proxy.post(STREAM)
        assert reply.body.endswith(b"data: [DONE]\n\n: bye\n\n" + encode([sampled(0, [9])]))
        assert await proxy.reason() is None


def test_bytes_pass_as_they_came_when_nothing_is_taken_out() -> None:
    """A piece of whole events is passed on as it is, not even copied."""
    piece = encode(complete_stream()[:3])
    assert StreamCapture(Answer(), drop_usage=True).feed(piece) is piece
