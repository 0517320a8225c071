"""The official OpenAI client through the proxy into a real store, and out of it as triplets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import openai
import pytest

from agl_proxy import ledger
from agl_proxy.app import ProxyApp, ProxyOptions
from agl_streams import semconv
from agl_streams.adapters import TripletAdapter
from agl_streams.config import Settings, load_settings
from agl_streams.models import AttemptedRollout, ProxyLLM
from agl_streams.store import StreamStore
from tests.proxy.support import serving
from tests.support.engine_standin import PROMPT_IDS, TOKENS, EngineStandin, Exchange
from tests.support.servers import EMBEDDED, Servers

IDS = [token.id for token in TOKENS]
LOGPROBS = [token.logprob for token in TOKENS]
TEXT = "".join(token.text for token in TOKENS)


@asynccontextmanager
async def agent_of(
    store: StreamStore, engine: EngineStandin, attempted: AttemptedRollout, *, max_retries: int = 0
) -> AsyncGenerator[openai.AsyncOpenAI]:
    """The OpenAI client of an attempt's agent, through a proxy of its own."""
    async with ProxyApp(store, ProxyOptions(upstream=engine.url)) as app, serving(app) as url:
        resource = ProxyLLM(endpoint=f"{url}/v1", model="tiny")
        base = resource.get_base_url(attempted.rollout_id, attempted.attempt.attempt_id)
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=max_retries) as client:
            yield client


async def begun(store: StreamStore) -> AttemptedRollout:
    """A rollout with an attempt that has begun."""
    await store.enqueue_rollout({"task": 1})
    attempted = await store.dequeue_rollout(worker_id="w-1")
    assert attempted is not None
    return attempted


async def ask(client: openai.AsyncOpenAI, text: str) -> str:
    """One chat call; its text."""
    answer = await client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content or ""


async def ask_streamed(client: openai.AsyncOpenAI, text: str) -> str:
    """One streamed chat call; its text."""
    chunks = await client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": text}], stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


async def test_calls_become_triplets(store: StreamStore, engine: EngineStandin) -> None:
    """Whole or streamed, each call is a complete span in the order of the calls, and its tokens come out exactly."""
    attempted = await begun(store)
    async with agent_of(store, engine, attempted) as client:
        assert await ask(client, "first") == TEXT
        assert await ask_streamed(client, "second") == TEXT
        # The client has its answer, so the spans are stored: nothing is waited for.
        spans = list(await store.query_spans(attempted.rollout_id, attempted.attempt.attempt_id))
    assert [span.sequence_id for span in spans] == [1, 2]
    assert [json.loads(str(span.attributes[semconv.GEN_AI_INPUT_MESSAGES]))[0]["content"] for span in spans] == [
        "first",
        "second",
    ]
    batch = TripletAdapter().adapt(spans)
    assert not batch.left_out
    found = [
        (triplet.prompt.token_ids, triplet.response.token_ids, triplet.response.logprobs) for triplet in batch.triplets
    ]
    assert found == [(PROMPT_IDS, IDS, LOGPROBS)] * 2
    await store.settle()
    sums = await store.rollout_sums(attempted.rollout_id)
    assert (sums.model_calls, sums.prompt_tokens, sums.completion_tokens, sums.incomplete) == (2, 8, 8, 0)


async def test_calls_at_once_have_numbers_of_their_own(store: StreamStore, engine: EngineStandin) -> None:
    """Twenty calls at once of one attempt get twenty sequence ids and twenty complete spans."""
    attempted = await begun(store)
    async with agent_of(store, engine, attempted) as client:
        await asyncio.gather(*(ask_streamed(client, str(n)) for n in range(20)))
    spans = list(await store.query_spans(attempted.rollout_id))
    assert [span.sequence_id for span in spans] == list(range(1, 21))
    assert all(span.attributes[semconv.CALL_COMPLETE] for span in spans)


async def test_a_call_sets_its_attempt_running(store: StreamStore, engine: EngineStandin) -> None:
    """The span of a call is the sign of life of its attempt."""
    attempted = await begun(store)
    async with agent_of(store, engine, attempted) as client:
        await ask(client, "hi")
    rollout = await store.get_rollout_by_id(attempted.rollout_id)
    assert rollout is not None
    assert rollout.status == "running"


async def test_the_agent_of_an_ended_attempt_is_told_once(store: StreamStore, engine: EngineStandin) -> None:
    """A 409 is not repeated by the official client, although it repeats others, and no token is sampled."""
    attempted = await begun(store)
    await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, status="succeeded")
    async with agent_of(store, engine, attempted, max_retries=2) as client:
        with pytest.raises(openai.ConflictError):
            await ask(client, "hi")
    assert engine.requests == []


async def test_a_rollout_that_ends_during_a_call_keeps_its_span(store: StreamStore, engine: EngineStandin) -> None:
    """The call was admitted in time: its answer passes and its span is stored, changing nothing else."""
    attempted = await begun(store)

    async def end_first(exchange: Exchange) -> None:
        await store.update_rollout(attempted.rollout_id, status="cancelled")
        await exchange.speak()

    engine.behave(end_first)
    async with agent_of(store, engine, attempted) as client:
        assert await ask(client, "hi") == TEXT
        with pytest.raises(openai.ConflictError):
            await ask(client, "again")
    assert len(list(await store.query_spans(attempted.rollout_id))) == 1
    rollout = await store.get_rollout_by_id(attempted.rollout_id)
    assert rollout is not None
    assert rollout.status == "cancelled"


async def test_an_unknown_attempt_is_a_404(store: StreamStore, engine: EngineStandin) -> None:
    """An attempt that the store does not know cannot sample."""
    attempted = await begun(store)
    stranger = attempted.attempt.model_copy(update={"attempt_id": "at-unknown"})
    async with agent_of(store, engine, attempted.model_copy(update={"attempt": stranger})) as client:
        with pytest.raises(openai.NotFoundError):
            await ask(client, "hi")
    assert engine.requests == []


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_a_store_that_dies_during_a_call_withholds_the_answer(
    servers: Servers, engine: EngineStandin, settings: Settings, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """The server of the store is killed while the engine samples: the agent gets an error, never an untraced answer."""
    monkeypatch.setattr(ledger, "STORE_TIMEOUT_S", 1.0)  # the connection would try for longer
    server = servers.start(EMBEDDED)
    theirs = load_settings(redis_url=server.url, namespace=settings.namespace, data_dir=settings.data_dir)
    async with await StreamStore.connect(settings=theirs) as store:
        attempted = await begun(store)

        async def kill_first(exchange: Exchange) -> None:
            server.kill()
            await exchange.speak()

        engine.behave(kill_first)
        async with agent_of(store, engine, attempted) as client:
            with pytest.raises(openai.APIError) as failure:
                await (ask_streamed(client, "hi") if streamed else ask(client, "hi"))
        assert "503" in str(failure.value.body) + str(getattr(failure.value, "status_code", ""))
