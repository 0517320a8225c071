"""Chapter 9: agents call their model through the proxy, which records the exact tokens and stays out of the way."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from agl_streams import AttemptedRollout, ProxyLLM, Span, StreamStore, TripletAdapter, semconv
from tests.support.engine_standin import PROMPT_IDS, TOKENS, EngineStandin, drop_after, without_ids
from tests.support.waiting import until

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Greet the world."}]


@pytest.fixture
async def attempt(store: StreamStore) -> AttemptedRollout:
    """A rollout with its first attempt open."""
    return await store.start_rollout("Greet the world.")


@pytest.fixture
async def client(model: ProxyLLM, attempt: AttemptedRollout) -> AsyncGenerator[AsyncOpenAI]:
    """OpenAI's own client, on the base URL of the attempt."""
    base_url = model.get_base_url(attempt.rollout_id, attempt.attempt.attempt_id)
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


async def only_span(store: StreamStore, attempt: AttemptedRollout) -> Span:
    """The one span of the attempt, once it is there."""
    spans = await until(lambda: store.query_spans(attempt.rollout_id), what="the span of the call")
    (span,) = spans
    return span


async def test_a_call_is_recorded_with_its_tokens(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout
) -> None:
    """The span of a call holds prompt ids, sampled ids and log-probabilities as the server gave them."""
    answer = await client.chat.completions.create(model="tiny", messages=MESSAGES)

    assert answer.choices[0].message.content == " Grüße 世界"
    span = await only_span(store, attempt)
    assert span.name == "chat tiny"
    assert span.attributes[semconv.CALL_COMPLETE] is True
    assert span.attributes[semconv.CALL_PROMPT_TOKEN_IDS] == PROMPT_IDS
    assert span.attributes["agl_streams.call.choices.0.token_ids"] == [token.id for token in TOKENS]
    assert span.attributes["agl_streams.call.choices.0.logprobs"] == [token.logprob for token in TOKENS]


async def test_a_streamed_call_is_recorded_alike(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout
) -> None:
    """A stream reaches the agent piece by piece, and its span has the same tokens."""
    pieces: list[str] = []
    async for chunk in await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True):
        pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]

    assert pieces == [" Grüße", " 世", "界"]
    (triplet,) = TripletAdapter().adapt([await only_span(store, attempt)]).triplets
    assert triplet.prompt.token_ids == PROMPT_IDS
    assert triplet.response.token_ids == [token.id for token in TOKENS]


async def test_the_answer_comes_after_its_span(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout
) -> None:
    """When an agent has its answer the span is stored already, so an agent that ends at once loses nothing."""
    await client.chat.completions.create(model="tiny", messages=MESSAGES)

    assert len(await store.query_spans(attempt.rollout_id)) == 1


async def test_a_server_without_token_ids_is_never_trained_on(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout, engine: EngineStandin
) -> None:
    """The agent gets its answer, and the span says that the capture is incomplete and why."""
    engine.behave(without_ids)

    answer = await client.chat.completions.create(model="tiny", messages=MESSAGES)

    assert answer.choices[0].message.content == " Grüße 世界"
    batch = TripletAdapter().adapt([await only_span(store, attempt)])
    assert (batch.triplets, batch.left_out) == ([], {"no_prompt_token_ids": 1})


async def test_a_call_that_breaks_off_is_an_error_and_a_span(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout, engine: EngineStandin
) -> None:
    """An agent never takes half a stream for a whole one, and what was sampled is kept as incomplete."""
    engine.behave(drop_after(3))

    with pytest.raises(APIError, match="broke off"):
        async for _ in await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True):
            pass

    span = await only_span(store, attempt)
    assert span.attributes[semconv.CALL_COMPLETE] is False
    assert span.attributes[semconv.CALL_INCOMPLETE_REASON] == "upstream_broke_off"


async def test_an_ended_attempt_makes_no_more_calls(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout, engine: EngineStandin
) -> None:
    """The call of an attempt that is over is refused with 409 before a token is sampled."""
    await store.cancel_rollout(attempt.rollout_id, "not needed any more")

    with pytest.raises(APIStatusError) as refusal:
        await client.chat.completions.create(model="tiny", messages=MESSAGES)

    assert refusal.value.status_code == 409
    assert engine.requests == []


async def test_calls_count_towards_the_rollout(
    store: StreamStore, client: AsyncOpenAI, attempt: AttemptedRollout
) -> None:
    """The sums of a rollout say how many calls it made, with how many tokens, and how many were incomplete."""
    await client.chat.completions.create(model="tiny", messages=MESSAGES)
    await client.chat.completions.create(model="tiny", messages=MESSAGES)
    await store.settle()

    sums = await store.rollout_sums(attempt.rollout_id)
    assert (sums.model_calls, sums.incomplete) == (2, 0)
    assert (sums.prompt_tokens, sums.completion_tokens) == (2 * len(PROMPT_IDS), 2 * len(TOKENS))
