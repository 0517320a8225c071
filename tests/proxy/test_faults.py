"""Whatever the inference server does, the agent gets a clear error or its bytes, the span says why, nothing hangs."""

from __future__ import annotations

import json

import openai
import pytest
from structlog.testing import capture_logs

from agl_proxy import checks
from agl_proxy.upstream import Timeouts
from agl_streams import semconv
from tests.proxy.recorded import Recorded, each
from tests.proxy.support import ATTEMPT, REQUEST, ROLLOUT, STREAM, Proxy, served
from tests.support.engine_standin import (
    TOKENS,
    Behaviour,
    EngineStandin,
    Exchange,
    drop,
    drop_after,
    frames,
    hang,
    refuse,
    say,
    stall_after,
    whole_answer,
    without_ids,
)

SHORT = Timeouts(connect=5.0, first_byte=0.3, idle=0.3, total=30.0)


@each("errors")
async def test_an_error_of_the_server_passes_unchanged(proxy: Proxy, recorded: Recorded) -> None:
    """Every recorded refusal reaches the agent byte for byte, and the span has its status."""
    proxy.engine.behave(refuse(recorded.status, recorded.body))
    reply = await proxy.post(STREAM)
    assert (reply.status, reply.body) == (recorded.status, recorded.body)
    assert reply.headers["content-type"] == "application/json"
    assert await proxy.reason() == checks.UPSTREAM_STATUS
    call = proxy.store.only_call()
    assert call[semconv.CALL_STATUS_CODE] == recorded.status
    assert call[semconv.ERROR_TYPE] == checks.UPSTREAM_STATUS


@pytest.mark.parametrize("body", [b"", b"Internal Server Error", b"\xff\xfe"])
async def test_an_error_that_is_no_json_passes_too(proxy: Proxy, body: bytes) -> None:
    """A 500 with any body passes unchanged."""
    proxy.engine.behave(refuse(500, body))
    reply = await proxy.post(REQUEST)
    assert (reply.status, reply.body) == (500, body)
    assert await proxy.reason() == checks.UPSTREAM_STATUS


async def test_a_server_that_cannot_be_reached_is_a_502(engine: EngineStandin) -> None:
    """When nobody listens, the agent is told at once."""
    async with served(engine, upstream="http://127.0.0.1:9") as proxy:
        reply = await proxy.post(REQUEST)
        assert reply.status == 502
        assert "cannot be reached" in reply.error["message"]
        assert await proxy.reason() == checks.UPSTREAM_UNREACHABLE


@pytest.mark.parametrize("body", [REQUEST, STREAM], ids=["whole", "stream"])
async def test_a_server_that_never_answers_is_a_504(engine: EngineStandin, body: dict[str, object]) -> None:
    """A server that takes the request and stays silent costs the agent the first-byte limit, no more."""
    async with served(engine, timeouts=SHORT) as proxy:
        engine.behave(hang)
        reply = await proxy.post(body)
        assert reply.status == 504
        assert reply.error["type"] == "UpstreamTimeout"
        assert await proxy.reason() == checks.UPSTREAM_SILENT


async def test_a_stream_that_stops_on_an_open_connection_ends_with_an_error(engine: EngineStandin) -> None:
    """What vLLM does on SIGTERM: the agent gets what was sampled, then an error instead of the terminator."""
    async with served(engine, timeouts=SHORT) as proxy:
        engine.behave(stall_after(3))
        reply = await proxy.post(STREAM)
        assert reply.status == 200
        assert reply.body.count(b"data: ") == 4
        assert b"[DONE]" not in reply.body
        assert "sent nothing for 0.3 s" in reply.error["message"]
        assert await proxy.reason() == checks.UPSTREAM_STALLED


async def test_the_whole_call_has_a_limit(engine: EngineStandin) -> None:
    """A server that sends something now and then, for ever, is cut off by the limit of the whole call."""

    async def chatter(exchange: Exchange) -> None:
        await exchange.begin()
        while True:
            await exchange.write(exchange.frames()[1])

    async with served(engine, timeouts=Timeouts(total=0.3)) as proxy:
        engine.behave(chatter)
        reply = await proxy.post(STREAM)
        assert reply.error["code"] == 504
        assert await proxy.reason() == checks.UPSTREAM_TOO_SLOW


async def test_a_connection_that_breaks_before_the_answer_is_a_502(proxy: Proxy) -> None:
    """A server that dies with the request in hand is an error, and the call is not repeated behind the agent's back."""
    proxy.engine.behave(drop)
    reply = await proxy.post(REQUEST)
    assert reply.status == 502
    assert await proxy.reason() == checks.UPSTREAM_BROKE_OFF
    assert len(proxy.engine.requests) == 1


@pytest.mark.parametrize("half_frame", [False, True], ids=["between-events", "in-an-event"])
async def test_a_server_that_dies_in_a_stream_leaves_whole_events_and_an_error(proxy: Proxy, half_frame: bool) -> None:
    """The agent gets the whole events that came, then an error event, never half an event or a terminator."""
    proxy.engine.behave(drop_after(3, half_frame=half_frame))
    reply = await proxy.post(STREAM)
    *events, error, rest = reply.body.split(b"\n\n")
    assert rest == b""
    assert b"\n\n".join([*events, b""]) == b"".join(frames(proxy.engine.requests[0], TOKENS)[: len(events)])
    assert json.loads(error[6:])["error"]["code"] == 502
    assert await proxy.reason() == checks.UPSTREAM_BROKE_OFF


async def test_a_partial_capture_keeps_its_tokens(proxy: Proxy) -> None:
    """The span of a broken stream holds what was sampled until then, marked incomplete."""
    proxy.engine.behave(stall_after(3))
    async with proxy.client.post(
        f"{proxy.url}/rollout/{ROLLOUT}/attempt/{ATTEMPT}/v1/chat/completions", json=STREAM
    ) as r:
        assert await r.content.readany() != b""
        r.close()
    call = await proxy.stored()
    assert call[semconv.CALL_COMPLETE] is False
    assert call[semconv.CALL_PROMPT_TOKEN_IDS] == [1, 87, 505, 201]


async def test_a_server_that_dies_in_a_whole_answer_is_a_502(proxy: Proxy) -> None:
    """Half a JSON answer is never passed on."""

    async def half(exchange: Exchange) -> None:
        await exchange.begin("application/json")
        await exchange.write(whole_answer(exchange.body, TOKENS)[:100])
        exchange.drop()

    proxy.engine.behave(half)
    reply = await proxy.post(REQUEST)
    assert reply.status == 502
    assert await proxy.reason() == checks.UPSTREAM_BROKE_OFF


def without_terminator(finished: bool) -> Behaviour:
    """A stream that ends cleanly and too early."""

    async def behaviour(exchange: Exchange) -> None:
        kept = exchange.frames()[:-1] if finished else exchange.frames()[:3]
        await say(*kept)(exchange)

    return behaviour


async def test_a_stream_that_ends_too_early_gets_an_error_event(proxy: Proxy) -> None:
    """A clean end in the middle of an answer is an error: nobody must take the half for the whole."""
    proxy.engine.behave(without_terminator(finished=False))
    reply = await proxy.post(STREAM)
    assert "before the answer was complete" in reply.error["message"]
    assert await proxy.reason() == checks.NO_TERMINATOR


async def test_a_stream_without_terminator_is_incomplete_but_passes(proxy: Proxy) -> None:
    """A server that finishes and sends no ``[DONE]`` gives the agent its answer; the capture is incomplete."""
    proxy.engine.behave(without_terminator(finished=True))
    reply = await proxy.post({**STREAM, "stream_options": {"include_usage": True}})
    assert reply.body == b"".join(frames(proxy.engine.requests[0], TOKENS)[:-1])
    assert await proxy.reason() == checks.NO_TERMINATOR


async def test_an_error_event_of_the_server_passes(proxy: Proxy) -> None:
    """An engine that dies reports it in the stream: the agent gets that event, the span its words."""
    error = b'data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError"}}\n\n'

    async def die(exchange: Exchange) -> None:
        await say(*exchange.frames()[:3], error, b"data: [DONE]\n\n")(exchange)

    proxy.engine.behave(die)
    reply = await proxy.post(STREAM)
    assert reply.body.endswith(error + b"data: [DONE]\n\n")
    assert await proxy.reason() == checks.UPSTREAM_ERROR
    (span,) = proxy.store.spans
    assert span.status.status_code == "ERROR"
    assert span.status.description == "EngineCore encountered an issue."


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"choices": 3}', b'"text"', b'{"choices": [{"index": "0"}]}'])
async def test_an_answer_of_no_known_form_passes_as_incomplete(proxy: Proxy, body: bytes) -> None:
    """A 200 that is no chat completion reaches the agent, and its span is incomplete."""
    proxy.engine.behave(refuse(200, body))
    reply = await proxy.post(REQUEST)
    assert (reply.status, reply.body) == (200, body)
    assert await proxy.reason() == checks.UNREADABLE


async def test_a_value_that_no_span_can_hold_makes_a_bare_span(proxy: Proxy) -> None:
    """An answer with an object for its id passes, and is stored without its content, incomplete."""
    answer = json.loads(whole_answer(REQUEST, TOKENS))
    body = json.dumps({**answer, "id": {"no": "text"}}).encode()
    proxy.engine.behave(refuse(200, body))
    reply = await proxy.post(REQUEST)
    assert (reply.status, reply.body) == (200, body)
    assert await proxy.reason() == checks.UNREADABLE


async def test_a_stream_of_no_known_form_passes_as_incomplete(proxy: Proxy) -> None:
    """Events that are no chunks reach the agent, and the span is incomplete."""
    events = [b"data: {}\n\n", b"data: nonsense\n\n", b"data: [1]\n\n", b": comment\n\n", b"data: [DONE]\n\n"]
    proxy.engine.behave(say(*events))
    reply = await proxy.post(STREAM)
    assert reply.body == b"".join(events)
    assert await proxy.reason() == checks.UNREADABLE


@pytest.mark.parametrize("body", [REQUEST, STREAM], ids=["whole", "stream"])
async def test_a_server_without_token_ids_is_told_of_loudly_and_once(proxy: Proxy, body: dict[str, object]) -> None:
    """The agent gets its answer, each span is incomplete, and one error names the model."""
    proxy.engine.behave(without_ids, without_ids)
    with capture_logs() as logs:
        replies = [await proxy.post(body), await proxy.post(body)]
    assert [reply.status for reply in replies] == [200, 200]
    reasons = [span.attributes[semconv.CALL_INCOMPLETE_REASON] for span in proxy.store.spans]
    assert reasons == [checks.NO_PROMPT_TOKEN_IDS] * 2
    loud = [entry for entry in logs if entry["event"] == "model_gives_no_token_ids"]
    assert [(entry["log_level"], entry["model"]) for entry in loud] == [("error", "tiny")]


async def test_the_official_client_raises_when_a_stream_breaks(engine: EngineStandin) -> None:
    """OpenAI's SDK turns the error event into an exception with the proxy's words."""
    async with served(engine, timeouts=SHORT) as proxy:
        engine.behave(stall_after(2))
        base = f"{proxy.url}/rollout/{ROLLOUT}/attempt/{ATTEMPT}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            with pytest.raises(openai.APIError, match="sent nothing for"):
                async for _ in stream:
                    pass
