"""What an agent gives, and what the runner makes of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from agl_streams import (
    LLM,
    AttemptContext,
    AttemptedRollout,
    ProxyLLM,
    RolloutConfig,
    Span,
    StreamStore,
    emit_message,
    emit_reward,
    rollout,
    semconv,
)
from agl_workers.outcome import Outcome
from agl_workers.runner import Runner
from tests.support.waiting import until
from tests.workers.support import WORKER, attempts_of, get, reason_of, running, work


@rollout
async def returns_async(task: Any) -> Any:
    """Async agent that returns its task."""
    return task


@rollout
def returns_sync(task: Any) -> Any:
    """Plain agent that returns its task."""
    return task


@rollout
async def raises_async(task: str) -> None:
    """Async agent that fails."""
    raise ValueError(task)


@rollout
def raises_sync(task: str) -> None:
    """Plain agent that fails."""
    raise ValueError(task)


@pytest.mark.parametrize("agent", [returns_async, returns_sync])
async def test_a_number_is_the_reward(store: StreamStore, agent: Callable[..., Any]) -> None:
    """An agent that returns a number, whichever way it runs, has succeeded with this reward."""
    (done,), outcomes = await work(store, agent, 0.75)
    assert outcomes == [Outcome.SUCCEEDED]
    assert done.status == "succeeded"
    (span,) = await store.query_spans(done.rollout_id)
    assert semconv.reward_value(span) == 0.75


async def test_nothing_is_a_result_too(store: StreamStore) -> None:
    """An agent that returns None has succeeded, without a span."""
    (done,), _ = await work(store, returns_async, None)
    assert done.status == "succeeded"
    assert len(await store.query_spans(done.rollout_id)) == 0


async def test_returned_spans_are_stored(store: StreamStore) -> None:
    """A list of spans, ours or OpenTelemetry's, is stored after what was emitted, under the attempt's ids."""
    tracer = TracerProvider().get_tracer("test")

    @rollout
    async def ours(task: str) -> list[Span]:
        emit_message("first")
        return [Span.from_attributes(name=name, attributes={}) for name in ("second", "third")]

    @rollout
    async def foreign(task: str) -> list[ReadableSpan]:
        spans = [tracer.start_span(name) for name in ("second", "third")]
        for span in spans:
            span.end()
        emit_message("first")
        return [span for span in spans if isinstance(span, ReadableSpan)]

    for agent in (ours, foreign):
        (done,), _ = await work(store, agent, "task")
        names = [span.name for span in await store.query_spans(done.rollout_id, "latest")]
        assert names == [semconv.AGL_MESSAGE, "second", "third"]


@pytest.mark.parametrize("agent", [raises_async, raises_sync])
async def test_an_exception_is_a_failure(store: StreamStore, agent: Callable[..., Any]) -> None:
    """An agent that raises has failed: the reason is one line, the span has type, message and stack."""
    (done,), outcomes = await work(store, agent, "no\nluck")
    assert outcomes == [Outcome.FAILED]
    (attempt,) = await attempts_of(store, done.rollout_id)
    assert (done.status, attempt.status, reason_of(attempt)) == ("failed", "failed", "ValueError: no luck")
    (span,) = await store.query_spans(done.rollout_id)
    assert span.name == semconv.AGL_EXCEPTION
    assert span.attributes[semconv.EXCEPTION_TYPE] == "ValueError"
    assert span.attributes[semconv.EXCEPTION_MESSAGE] == "no\nluck"
    assert "raises_" in str(span.attributes[semconv.EXCEPTION_STACKTRACE])


async def test_what_was_emitted_before_an_exception_is_kept(store: StreamStore) -> None:
    """The exception is the last span of a failed attempt, after all that the agent had emitted."""

    @rollout
    async def unlucky(task: str) -> None:
        emit_reward(0.25)
        raise RuntimeError

    (done,), _ = await work(store, unlucky, "task")
    assert [span.name for span in await store.query_spans(done.rollout_id)] == [
        semconv.AGL_ANNOTATION,
        semconv.AGL_EXCEPTION,
    ]


@pytest.mark.parametrize("result", ["text", [1, 2], {"reward": 1}])
async def test_anything_else_is_a_failure(store: StreamStore, result: Any) -> None:
    """A result that is neither number, spans nor None fails the attempt, and the reason names its type."""
    (done,), _ = await work(store, returns_async, result)
    (attempt,) = await attempts_of(store, done.rollout_id)
    assert attempt.status == "failed"
    assert "AgentError: the agent returned" in (reason_of(attempt) or "")


async def test_an_agent_that_cancels_itself_has_failed(store: StreamStore) -> None:
    """A cancellation that comes from within the agent is its own failure, not the runner's."""

    @rollout
    async def awaits_something_cancelled(task: str) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    (done,), outcomes = await work(store, awaits_something_cancelled, "task")
    assert outcomes == [Outcome.FAILED]
    (attempt,) = await attempts_of(store, done.rollout_id)
    assert "CancelledError" in (reason_of(attempt) or "")


async def test_a_span_that_cannot_be_stored_fails_the_attempt(store: StreamStore) -> None:
    """A span that the store refuses fails the attempt with the store's words; the other spans are stored."""

    @rollout
    async def careless(task: str) -> list[Span]:
        bad = Span.from_attributes(name="bad", attributes={}, span_id="x" * 1000)
        good = [Span.from_attributes(name=name, attributes={}) for name in ("good", "better")]
        return [good[0], bad, good[1]]

    (done,), _ = await work(store, careless, "task")
    (attempt,) = await attempts_of(store, done.rollout_id)
    assert attempt.status == "failed"
    assert "InvalidRequest: span id must be" in (reason_of(attempt) or "")
    assert [span.name for span in await store.query_spans(done.rollout_id)] == ["good", "better"]


async def test_a_failure_may_be_tried_again(store: StreamStore) -> None:
    """A failed attempt whose rollout allows another goes back to the queue, and the second one counts."""

    @rollout
    async def second_time_lucky(task: str, context: AttemptContext) -> float:
        return 1.0 / (context.attempt.sequence_id - 1)

    config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
    enqueued = await store.enqueue_rollout("task", config=config)
    await Runner(store, second_time_lucky, worker_id=WORKER, max_rollouts=2).run(asyncio.Event())
    assert (await get(store, enqueued.rollout_id)).status == "succeeded"
    statuses = [attempt.status for attempt in await attempts_of(store, enqueued.rollout_id)]
    assert statuses == ["failed", "succeeded"]


async def test_an_agent_knows_where_it_is(store: StreamStore) -> None:
    """An agent is given its rollout and attempt, and the base URL under which the proxy knows them."""
    seen: list[tuple[AttemptedRollout, str]] = []
    await store.add_resources({"main": ProxyLLM(endpoint="http://proxy:4750/v1", model="tiny")})

    @rollout
    async def curious(task: str, rollout: AttemptedRollout, llm: LLM) -> None:
        seen.append((rollout, llm.endpoint))

    (done,), _ = await work(store, curious, "task")
    ((given, endpoint),) = seen
    assert given.rollout_id == done.rollout_id
    assert given.attempt.worker_id == WORKER
    assert endpoint == f"http://proxy:4750/rollout/{done.rollout_id}/attempt/{given.attempt.attempt_id}/v1"


async def test_the_resources_that_a_rollout_names_are_used(store: StreamStore) -> None:
    """A rollout runs against the resources it names, or, where it names none, against the latest."""
    seen: dict[str, str] = {}

    @rollout
    async def which(task: str, llm: LLM) -> None:
        seen[task] = llm.model

    unnamed = await store.enqueue_rollout("unnamed")  # nobody has made resources yet
    old = await store.add_resources({"main": LLM(endpoint="http://x/v1", model="old")})
    named = await store.enqueue_rollout("named", resources_id=old.resources_id)
    await store.add_resources({"main": LLM(endpoint="http://x/v1", model="new")})
    assert unnamed.resources_id is None
    assert named.resources_id == old.resources_id

    await Runner(store, which, worker_id=WORKER, concurrency=2).run_once()
    assert seen == {"unnamed": "new", "named": "old"}


async def test_missing_resources_fail_the_attempt(store: StreamStore) -> None:
    """A rollout whose named resources are not there fails at once with that reason, and its agent does not run."""
    enqueued = await store.enqueue_rollout(1.0, resources_id="rs-of-nobody")
    outcomes = await Runner(store, returns_async, worker_id=WORKER).run_once()
    assert outcomes == [Outcome.FAILED]
    (attempt,) = await attempts_of(store, enqueued.rollout_id)
    assert (attempt.status, reason_of(attempt)) == ("failed", "missing_resources")
    (span,) = await store.query_spans(enqueued.rollout_id)
    assert "'rs-of-nobody'" in str(span.attributes[semconv.EXCEPTION_MESSAGE])


async def test_an_agent_without_the_model_it_needs_fails(store: StreamStore) -> None:
    """Without any resources an agent that asks for none runs, and one that asks for a model fails with the reason."""

    @rollout
    async def needs_a_model(task: str, llm: LLM) -> None:
        raise AssertionError(f"ran with {llm}")

    (first,), _ = await work(store, needs_a_model, "task")
    (second,), _ = await work(store, returns_async, 1.0)
    assert [first.status, second.status] == ["failed", "succeeded"]
    (attempt,) = await attempts_of(store, first.rollout_id)
    assert "NotFound: the agent needs a model" in (reason_of(attempt) or "")


async def test_plain_agents_run_side_by_side(store: StreamStore) -> None:
    """Plain agents of one runner have threads of their own, and may wait for each other."""
    all_three = threading.Barrier(3)

    @rollout
    def meet(task: int) -> float:
        all_three.wait()
        return float(task)

    done, _ = await work(store, meet, 1, 2, 3)
    assert [one.status for one in done] == ["succeeded"] * 3


async def test_a_free_place_takes_work_at_once(store: StreamStore) -> None:
    """While one agent takes long, the other place of the runner works through the queue."""
    may_end = asyncio.Event()

    @rollout
    async def slow_or_quick(task: str) -> None:
        if task == "slow":
            await may_end.wait()

    slow = await store.enqueue_rollout("slow")
    quick = [await store.enqueue_rollout("quick") for _ in range(5)]
    async with running(Runner(store, slow_or_quick, worker_id=WORKER, concurrency=2).run):
        done = await store.wait_for_rollouts(rollout_ids=[one.rollout_id for one in quick])
        assert len(done) == 5
        assert (await get(store, slow.rollout_id)).status == "preparing"
        may_end.set()


async def test_a_runner_ends_after_so_many_rollouts(store: StreamStore) -> None:
    """A runner with a number of rollouts to do ends by itself when they are done, and takes no other."""
    for _ in range(5):
        await store.enqueue_rollout(1.0)
    runner = Runner(store, returns_async, worker_id=WORKER, concurrency=2, max_rollouts=3)
    await runner.run(asyncio.Event())
    assert len(await store.query_rollouts(status_in=["succeeded"])) == 3
    assert len(await store.query_rollouts(status_in=["queuing"])) == 2


async def test_a_runner_shows_itself(store: StreamStore) -> None:
    """A running worker sends its heartbeat with what it holds, is busy while it works and idle afterwards."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    @rollout
    async def held(task: str) -> None:
        begun.set()
        await may_end.wait()

    async with running(Runner(store, held, worker_id=WORKER, concurrency=2).run):
        worker = await until(lambda: store.get_worker_by_id(WORKER), what="the worker")
        assert worker is not None
        assert worker.heartbeat_stats is not None
        assert {"pid", "host", "held_attempts", "concurrency", "rss_bytes"} <= set(worker.heartbeat_stats)
        enqueued = await store.enqueue_rollout("task")
        await begun.wait()
        busy = await store.get_worker_by_id(WORKER)
        assert busy is not None
        assert (busy.status, busy.current_rollout_id) == ("busy", enqueued.rollout_id)
        may_end.set()
        await store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id])
    idle = await store.get_worker_by_id(WORKER)
    assert idle is not None
    assert idle.status == "idle"
