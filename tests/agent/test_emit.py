"""What agents emit: which spans, in which order, and that nobody waits."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from typing import Any

import pytest

from agl_streams import semconv
from agl_streams.agent import AttemptContext, call_agent, current_context, emit_exception, emit_message, emit_reward
from agl_streams.errors import AttemptEnded, InvalidRequest, StoreUnavailable, TooLarge
from agl_streams.models import LLM, ProxyLLM, Span, TraceStatus
from tests.support.spans import ATTEMPT, ROLLOUT, attempted_rollout
from tests.support.spans_stored import Stored
from tests.support.waiting import until


async def test_a_reward_becomes_an_annotation(context: AttemptContext, stored: Stored) -> None:
    """The span names rollout and attempt, carries the value under the reference's names, and leaves its number open."""
    with context.bound():
        emitted = emit_reward(1)
    await context.flush()
    (span,) = stored.spans
    assert span == emitted
    assert (span.rollout_id, span.attempt_id, span.sequence_id) == (ROLLOUT, ATTEMPT, 0)
    assert span.name == "agentlightning.annotation"
    assert span.attributes == {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 1.0}
    assert semconv.reward_value(span) == 1.0
    assert span.start_time is not None
    assert span.start_time == span.end_time


async def test_the_primary_one_of_several_rewards_comes_first(context: AttemptContext) -> None:
    """The others keep their order; extra attributes are added."""
    with context.bound():
        span = emit_reward({"b": 1, "a": 2, "c": 3}, primary_key="a", attributes={"x": "y"})
    names = [value for key, value in span.attributes.items() if key.endswith(".name")]
    assert (names, semconv.reward_value(span), span.attributes["x"]) == (["a", "b", "c"], 2.0, "y")


@pytest.mark.parametrize(
    ("reward", "primary_key", "message"),
    [
        (math.nan, None, "reward 'primary' must be a finite number, got nan"),
        ("1", None, "reward 'primary' must be a finite number, got '1' of type str"),
        (None, None, "reward 'primary' must be a finite number, got None"),
        ({"a": 1}, None, r"primary_key must be one of the rewards \['a'\], got None"),
        ({"a": 1}, "b", r"primary_key must be one of the rewards \['a'\], got 'b'"),
        ({"a": 1, "b": math.inf}, "a", "reward 'b' must be a finite number"),
    ],
)
async def test_a_bad_reward_is_refused_where_it_is_emitted(
    context: AttemptContext, stored: Stored, reward: Any, primary_key: str | None, message: str
) -> None:
    """The agent sees the error at its own line, and nothing is sent."""
    with context.bound(), pytest.raises(InvalidRequest, match=message):
        emit_reward(reward, primary_key=primary_key)
    await context.flush()
    assert stored.spans == []


async def test_messages_and_exceptions_are_recorded(context: AttemptContext, stored: Stored) -> None:
    """Each has the name and the attributes that OpenTelemetry and the reference give it."""
    with context.bound():
        emit_message("hello", attributes={"level": "info"})
        emit_exception(ValueError("bad"), attributes={"step": 3})
    await context.flush()
    message, exception = stored.spans
    assert (message.name, message.attributes) == (
        "agentlightning.message",
        {"agentlightning.message.body": "hello", "level": "info"},
    )
    assert exception.name == "agentlightning.exception"
    assert exception.status == TraceStatus(status_code="ERROR", description="ValueError: bad")
    assert exception.attributes["step"] == 3
    assert message.trace_id == exception.trace_id


async def test_a_message_must_be_text(context: AttemptContext) -> None:
    """An object is refused, as is text that is not Unicode and text that is too long."""
    message: Any = {"not": "text"}
    with context.bound():
        with pytest.raises(InvalidRequest, match=r"span 'agentlightning.message': attributes"):
            emit_message(message)
        with pytest.raises(InvalidRequest, match="lone surrogate"):
            emit_message("\ud800")


async def test_a_large_span_is_refused_where_it_is_emitted(stored: Stored) -> None:
    """It would block everything behind it, so it never enters the buffer."""
    context = AttemptContext(attempted_rollout(), None, stored, max_span_bytes=1000)
    with (
        context.bound(),
        pytest.raises(TooLarge, match=r"span 'agentlightning.message' has 1,\d+ bytes .* limit is 1,000"),
    ):
        emit_message("x" * 1000)
    await context.flush()
    assert stored.spans == []


def test_outside_an_attempt_there_is_nothing_to_emit_to() -> None:
    """The error says where emitting works."""
    for emit in (
        lambda: emit_reward(1),
        lambda: emit_message("x"),
        lambda: emit_exception(ValueError()),
        current_context,
    ):
        with pytest.raises(
            InvalidRequest, match="there is no current attempt here: emit from a function that a runner"
        ):
            emit()


async def test_the_attempt_is_current_only_while_it_is_bound(context: AttemptContext) -> None:
    """Binding nests, and ends with its block."""
    other = AttemptContext(attempted_rollout(attempt_id="at-2"), None, Stored())
    with context.bound():
        with other.bound():
            assert current_context() is other
        assert current_context() is context
    with pytest.raises(InvalidRequest):
        current_context()


async def test_concurrent_attempts_keep_apart() -> None:
    """Each task and each thread finds its own attempt."""

    async def run(number: int) -> tuple[str, list[str]]:
        stored = Stored()
        context = AttemptContext(attempted_rollout(number, attempt_id=f"at-{number}"), None, stored)

        def agent(task: int) -> None:
            emit_message(str(task))

        async def async_agent(task: int) -> None:
            await asyncio.to_thread(emit_message, str(task))

        with context.bound():
            await call_agent(agent if number % 2 else async_agent, context)
        await context.flush()
        return str(number), [str(span.attributes[semconv.MESSAGE_BODY]) for span in stored.spans]

    for number, messages in await asyncio.gather(*(run(number) for number in range(20))):
        assert messages == [number]


async def test_order_is_kept_across_thread_and_loop(context: AttemptContext, stored: Stored) -> None:
    """Spans reach the store in the order of emission, from whichever side they came."""

    def step(number: int) -> None:
        emit_message(str(number))

    with context.bound():
        for number in range(0, 200, 2):
            step(number)
            await asyncio.to_thread(step, number + 1)
    await context.flush()
    assert [span.attributes[semconv.MESSAGE_BODY] for span in stored.spans] == [str(number) for number in range(200)]


async def test_many_threads_lose_nothing(context: AttemptContext, stored: Stored) -> None:
    """Every span arrives once, and those of a thread in its order."""

    def emit(thread: int) -> None:
        for number in range(50):
            emit_message(f"{thread}:{number}")

    with context.bound():
        variables = [contextvars.copy_context() for _ in range(8)]
        threads = [threading.Thread(target=own.run, args=(emit, index)) for index, own in enumerate(variables)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    await context.flush()
    messages = [str(span.attributes[semconv.MESSAGE_BODY]) for span in stored.spans]
    for index in range(8):
        own = [message for message in messages if message.startswith(f"{index}:")]
        assert own == [f"{index}:{number}" for number in range(50)]
    assert len(messages) == 400


async def test_emitting_does_not_wait_for_the_store(context: AttemptContext, stored: Stored) -> None:
    """While the store hangs the agent goes on; a flush waits for what was emitted."""
    stored.open.clear()

    def agent(task: object) -> str:
        for number in range(10):
            emit_message(str(number))
        return "done"

    with context.bound():
        assert await call_agent(agent, context) == "done"
    assert stored.spans == []
    flushed = asyncio.create_task(context.flush())
    stored.open.set()
    await flushed
    assert len(stored.spans) == 10


async def test_spans_are_handed_on_without_a_flush(context: AttemptContext, stored: Stored) -> None:
    """A reward gets its number before the next model call does, so it cannot wait for the end."""
    with context.bound():
        emit_reward(1)
        await until(lambda: stored.names == [semconv.AGL_ANNOTATION], what="the reward")


async def test_a_store_that_comes_back_gets_everything(context: AttemptContext, stored: Stored) -> None:
    """A failure in the background loses nothing and changes no order; the next emission tries again."""
    stored.failures = [StoreUnavailable("away")]
    with context.bound():
        emit_message("first")
        await until(lambda: not stored.failures, what="the failure")
        emit_message("second")
        await until(lambda: len(stored.spans) == 2, what="both messages")
    assert [span.attributes[semconv.MESSAGE_BODY] for span in stored.spans] == ["first", "second"]


async def test_a_flush_raises_what_the_store_raises(context: AttemptContext, stored: Stored) -> None:
    """The spans stay for the next flush."""
    context.emit(context.span("one", {}), context.span("two", {}))
    stored.failures = [StoreUnavailable("away")]
    with pytest.raises(StoreUnavailable, match="away"):
        await context.flush()
    await context.flush()
    assert stored.names == ["one", "two"]
    assert stored.calls == 2


async def test_a_cancelled_flush_loses_nothing(context: AttemptContext, stored: Stored) -> None:
    """What was under way stays in front of what comes later."""
    stored.open.clear()
    context.emit(context.span("one", {}))
    flushing = asyncio.create_task(context.flush())
    await until(lambda: stored.calls == 1)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    stored.open.set()
    context.emit(context.span("two", {}))
    await context.flush()
    assert stored.names == ["one", "two"]


def test_emitting_after_the_loop_is_gone_is_an_error() -> None:
    """A thread that outlives its runner learns that its attempt is over."""

    async def run() -> tuple[AttemptContext, Span]:
        context = AttemptContext(attempted_rollout(), None, Stored())
        with context.bound():
            return context, context.span("late", {})

    context, span = asyncio.run(run())
    with pytest.raises(AttemptEnded, match="has stopped"):
        context.emit(span)


async def test_a_base_url_is_the_attempts_own(context: AttemptContext) -> None:
    """A proxied model's URL names the attempt, another's is its endpoint."""
    assert (
        context.base_url(ProxyLLM(endpoint="http://p/v1", model="m"))
        == f"http://p/rollout/{ROLLOUT}/attempt/{ATTEMPT}/v1"
    )
    assert context.base_url(LLM(endpoint="http://p/v1", model="m")) == "http://p/v1"
