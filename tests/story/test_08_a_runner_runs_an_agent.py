"""Chapter 8: a runner takes rollouts, runs an agent on each, and reports; an agent is a function of its task."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from openai import AsyncOpenAI

from agl_streams import (
    LLM,
    AttemptContext,
    ProxyLLM,
    Rollout,
    StreamStore,
    TripletAdapter,
    emit_message,
    emit_reward,
    rollout,
    semconv,
)
from agl_workers.runner import Runner
from tests.support.waiting import until


async def run(store: StreamStore, agent: Any, *tasks: Any, concurrency: int = 1) -> list[Rollout]:
    """Put tasks on the queue, let a runner work on as many as it has places for, and return the rollouts."""
    enqueued = [await store.enqueue_rollout(task) for task in tasks]
    await Runner(store, agent, worker_id="worker-1", concurrency=concurrency).run_once()
    return await store.wait_for_rollouts(rollout_ids=[one.rollout_id for one in enqueued])


async def test_an_agent_returns_its_reward(store: StreamStore) -> None:
    """A number that an agent returns is the reward of its attempt, and the rollout has succeeded."""

    @rollout
    async def add(task: list[int]) -> float:
        return float(sum(task) == 4)

    (done,) = await run(store, add, [2, 2])

    assert done.status == "succeeded"
    (span,) = await store.query_spans(done.rollout_id)
    assert semconv.reward_value(span) == 1.0


async def test_an_agent_tells_what_it_does(store: StreamStore) -> None:
    """What an agent emits becomes spans of its attempt, in the order in which it was emitted."""

    @rollout
    async def think_aloud(task: str) -> None:
        emit_message(f"I was asked to {task}")
        emit_reward(0.5)
        emit_message("and now I am done")

    (done,) = await run(store, think_aloud, "think")

    spans = await store.query_spans(done.rollout_id)
    assert [span.name for span in spans] == [semconv.AGL_MESSAGE, semconv.AGL_ANNOTATION, semconv.AGL_MESSAGE]
    assert spans[0].attributes[semconv.MESSAGE_BODY] == "I was asked to think"


async def test_a_plain_function_runs_in_a_thread(store: StreamStore) -> None:
    """A plain function may block and still emit; it has a thread of its own."""
    names: list[str] = []

    @rollout
    def slow(task: str) -> None:
        names.append(threading.current_thread().name)
        emit_reward(1.0)

    (done,) = await run(store, slow, "task")

    assert names[0].startswith("agent-at-")
    assert len(await store.query_spans(done.rollout_id)) == 1


async def test_an_exception_fails_the_attempt(store: StreamStore) -> None:
    """An agent that raises has failed: its exception is the last span, and the reason that its owner reads."""

    @rollout
    async def broken(task: str) -> None:
        raise ZeroDivisionError("nothing to divide by")

    (done,) = await run(store, broken, "task")

    assert done.status == "failed"
    (span,) = await store.query_spans(done.rollout_id)
    assert span.attributes[semconv.EXCEPTION_TYPE] == "ZeroDivisionError"
    attempt = await store.get_latest_attempt(done.rollout_id)
    assert attempt is not None
    assert attempt.metadata == {semconv.REASON: "ZeroDivisionError: nothing to divide by"}


async def test_an_agent_asks_for_what_it_needs(store: StreamStore) -> None:
    """Parameters are filled in by name: the task, a prompt or model of the resources, the rollout, the attempt."""
    await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="tiny")})
    seen: dict[str, Any] = {}

    @rollout
    async def curious(task: str, llm: LLM, context: AttemptContext) -> None:
        seen.update(task=task, model=llm.model, attempt=context.attempt.sequence_id)

    await run(store, curious, "task")

    assert seen == {"task": "task", "model": "tiny", "attempt": 1}


async def test_a_runner_works_on_several_rollouts_at_once(store: StreamStore) -> None:
    """With two places a runner has two agents at work, which here wait for each other."""
    both = asyncio.Barrier(2)

    @rollout
    async def meet(task: str) -> None:
        await both.wait()

    done = await run(store, meet, "here", "there", concurrency=2)

    assert [one.status for one in done] == ["succeeded", "succeeded"]


async def test_a_runner_that_is_stopped_finishes_what_it_holds(store: StreamStore) -> None:
    """Once stopped a runner takes no more, and the attempt that it works on comes to its end."""
    begun, may_end, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @rollout
    async def patient(task: str) -> None:
        begun.set()
        await may_end.wait()

    first, second = [await store.enqueue_rollout(task) for task in ("first", "second")]
    running = asyncio.create_task(Runner(store, patient, worker_id="worker-1").run(stop))
    await begun.wait()
    stop.set()
    may_end.set()
    await running

    assert [one.rollout_id for one in await store.query_rollouts(status_in=["succeeded"])] == [first.rollout_id]
    assert [one.rollout_id for one in await store.query_rollouts(status_in=["queuing"])] == [second.rollout_id]


async def test_a_cancelled_rollout_stops_its_agent(store: StreamStore) -> None:
    """When its rollout is cancelled an agent is stopped at the next renewal of its lease."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    @rollout
    async def endless(task: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    enqueued = await store.enqueue_rollout("task")
    runner = Runner(store, endless, worker_id="worker-1", lease_seconds=0.3)
    running = asyncio.create_task(runner.run_once())
    await begun.wait()
    await store.cancel_rollout(enqueued.rollout_id, "not needed any more")

    await until(stopped.is_set, what="the agent to be stopped")
    assert await running == ["superseded"]


async def test_an_agent_calls_its_model(store: StreamStore, model: ProxyLLM) -> None:
    """The model that an agent is given records its calls, so that its reward has tokens to belong to."""
    await store.add_resources({"main": model})

    @rollout
    async def greet(task: str, llm: LLM) -> float:
        async with AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key or "none") as client:
            answer = await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": task}])
        return float("世界" in (answer.choices[0].message.content or ""))

    (done,) = await run(store, greet, "Greet the world.")

    (triplet,) = TripletAdapter().adapt(await store.query_spans(done.rollout_id)).triplets
    assert triplet.response.token_ids == [1397, 905, 1747, 2]
    assert triplet.reward == 1.0


@pytest.mark.parametrize("result", ["a text", float("nan"), {"reward": 1.0}])
async def test_a_result_that_is_none_fails_the_attempt(store: StreamStore, result: Any) -> None:
    """An agent returns a number, a list of spans or nothing; anything else fails, and the reason says what it gave."""

    @rollout
    async def odd(task: str) -> Any:
        return result

    (done,) = await run(store, odd, "task")

    assert done.status == "failed"
    attempt = await store.get_latest_attempt(done.rollout_id)
    assert attempt is not None
    assert attempt.metadata is not None
    assert type(result).__name__ in attempt.metadata[semconv.REASON]
