"""The span is stored before the answer's end is released; without the store there is no answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from agl_proxy import checks, ledger
from agl_streams import errors, semconv
from tests.proxy.support import CHAT, REQUEST, STREAM, Proxy, served
from tests.support.engine_standin import TOKENS, EngineStandin, frames
from tests.support.waiting import until

AWAY = errors.StoreUnavailable("the server cannot be reached")


async def test_a_whole_answer_waits_for_its_span(proxy: Proxy) -> None:
    """While the store is slow not even the head of an answer is released."""
    proxy.store.gate.clear()
    asked = asyncio.create_task(proxy.post(REQUEST))
    await until(lambda: proxy.store.adding, what="the span on its way")
    assert not asked.done()
    proxy.store.gate.set()
    reply = await asked
    assert reply.status == 200
    assert await proxy.reason() is None


async def test_a_streams_terminator_waits_for_its_span(proxy: Proxy) -> None:
    """While the store is slow the client has everything but the terminator."""
    proxy.store.gate.clear()
    received = bytearray()
    async with proxy.client.post(proxy.url + CHAT, json=STREAM) as response:
        sent = None
        while len(received) < len(sent or b"x"):
            received += await response.content.readany()
            events = frames(proxy.engine.requests[0], TOKENS)
            sent = b"".join(events[:-2])  # no usage event for this client, no terminator yet
        await until(lambda: proxy.store.adding, what="the span on its way")
        assert bytes(received) == sent
        proxy.store.gate.set()
        assert await response.content.read() == b"data: [DONE]\n\n"
    assert await proxy.reason() is None


async def test_without_the_store_no_call_reaches_the_server(engine: EngineStandin) -> None:
    """A call that cannot be admitted is a 503 with Retry-After, and no token is sampled."""
    async with served(engine) as proxy:
        proxy.store.admit_error = AWAY
        reply = await proxy.post(REQUEST)
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) > 0
        assert reply.error["type"] == "StoreUnavailable"
        assert engine.requests == []


async def test_an_answer_that_cannot_be_stored_is_a_503(proxy: Proxy) -> None:
    """When the store goes away during a call, its answer is withheld."""
    proxy.store.add_error = AWAY
    reply = await proxy.post(REQUEST)
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) > 0
    assert proxy.store.spans == []


async def test_a_stream_that_cannot_be_stored_ends_with_an_error(proxy: Proxy) -> None:
    """When the head is out already, an error event takes the terminator's place."""
    proxy.store.add_error = AWAY
    reply = await proxy.post(STREAM)
    assert reply.status == 200
    assert b"[DONE]" not in reply.body
    assert reply.error["code"] == 503
    assert "cannot be reached" in reply.error["message"]


async def test_a_store_that_does_not_answer_counts_as_away(
    engine: EngineStandin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs costs its limit, then the call is a 503."""
    monkeypatch.setattr(ledger, "STORE_TIMEOUT_S", 0.2)
    async with served(engine) as proxy:
        proxy.store.gate.clear()
        reply = await proxy.post(REQUEST)
        assert reply.status == 503
        assert "did not answer within 0.2 s" in reply.error["message"]


@pytest.mark.parametrize("body", [REQUEST, STREAM], ids=["whole", "stream"])
async def test_best_effort_releases_what_cannot_be_stored(engine: EngineStandin, body: dict[str, Any]) -> None:
    """With ``best_effort`` the agent gets its answer, and the loss is logged as an error."""
    async with served(engine, capture="best_effort") as proxy:
        proxy.store.add_error = AWAY
        with capture_logs() as logs:
            reply = await proxy.post(body)
        assert reply.status == 200
        assert b'"error"' not in reply.body
        lost = [entry for entry in logs if entry["event"] == "span_not_stored"]
        assert [(entry["log_level"], entry["sequence_id"]) for entry in lost] == [("error", 1)]


async def test_best_effort_lets_calls_pass_without_the_store(engine: EngineStandin) -> None:
    """With ``best_effort`` a call that cannot be admitted passes untouched and untraced, and is logged."""
    async with served(engine, capture="best_effort") as proxy:
        proxy.store.admit_error = AWAY
        with capture_logs() as logs:
            reply = await proxy.post(REQUEST)
        assert reply.status == 200
        assert engine.requests == [REQUEST]
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["call_untraced"]


@pytest.mark.parametrize("capture", ["required", "best_effort"])
async def test_an_ended_attempt_is_refused_before_a_token_is_sampled(engine: EngineStandin, capture: str) -> None:
    """The agent of an attempt that is over gets a 409 that its SDK does not repeat."""
    async with served(engine, capture=capture) as proxy:
        proxy.store.admit_error = errors.AttemptEnded("attempt 'at-1' is over")
        reply = await proxy.post(REQUEST)
        assert reply.status == 409
        assert reply.headers["x-should-retry"] == "false"
        assert reply.error["message"] == "attempt 'at-1' is over"
        assert engine.requests == []


async def test_a_span_above_the_stores_limit_is_kept_without_its_tokens(proxy: Proxy) -> None:
    """What the store cannot take in full is stored bare and incomplete, and the agent gets its answer."""
    proxy.store.refuse_tokens = errors.TooLarge("the span has 9,000,000 bytes")
    reply = await proxy.post(REQUEST)
    assert reply.status == 200
    assert await proxy.reason() == checks.TOO_LARGE
    assert semconv.CALL_PROMPT_TOKEN_IDS not in proxy.store.only_call()


@pytest.mark.parametrize("body", [REQUEST, STREAM], ids=["whole", "stream"])
async def test_a_store_with_a_bug_withholds_the_answer_too(
    proxy: Proxy, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw while the span is stored is a 500, never an untraced answer."""

    async def fail(_span: object) -> None:
        raise RuntimeError("out of paper")

    monkeypatch.setattr(proxy.store, "add_span", fail)
    reply = await proxy.post(body)
    assert b"[DONE]" not in reply.body
    assert reply.error["code"] == 500
    assert "out of paper" in reply.error["message"]
