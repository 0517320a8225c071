"""Running agents: on the loop or in a thread, with their parameters filled in, whatever they do."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agl_streams.agent import Agent, AttemptContext, call_agent, current_context, emit_message, rollout
from agl_streams.errors import AgentError, InvalidRequest, NotFound
from agl_streams.models import LLM, AttemptedRollout, NamedResources, PromptTemplate, ProxyLLM, ResourcesUpdate
from tests.support.spans import ATTEMPT, ROLLOUT, attempted_rollout
from tests.support.spans_stored import Stored
from tests.support.waiting import until


def with_resources(stored: Stored, **resources: LLM | ProxyLLM | PromptTemplate) -> AttemptContext:
    """An attempt that runs against these resources."""
    named: NamedResources = dict(resources)
    update = ResourcesUpdate(resources_id="rs-1", create_time=1, update_time=1, version=1, resources=named)
    return AttemptContext(attempted_rollout("task"), update, stored)


async def test_an_async_agent_runs_in_the_callers_task(context: AttemptContext) -> None:
    """It gets the task, and its result comes back as it is."""

    @rollout
    async def agent(task: dict[str, int]) -> list[object]:
        return [task, threading.current_thread() is threading.main_thread(), current_context() is context]

    with context.bound():
        assert await call_agent(agent, context) == [{"q": 2}, True, True]


async def test_a_plain_agent_runs_in_a_thread_of_its_own(context: AttemptContext) -> None:
    """The thread is named after the attempt and finds it, and the loop goes on meanwhile."""
    loop_goes_on = threading.Event()

    @rollout
    def agent(task: dict[str, int]) -> list[object]:
        assert loop_goes_on.wait(20)
        return [task, threading.current_thread().name, current_context() is context]

    with context.bound():
        running = asyncio.create_task(call_agent(agent, context))
        await asyncio.to_thread(loop_goes_on.set)
        assert await running == [{"q": 2}, f"agent-{ATTEMPT}", True]


async def test_many_plain_agents_run_at_once(stored: Stored) -> None:
    """No pool limits how many agents wait for each other."""
    together = threading.Barrier(40)

    def agent(task: object) -> bool:
        together.wait(20)
        return True

    contexts = [AttemptContext(attempted_rollout(), None, stored) for _ in range(40)]
    assert all(await asyncio.gather(*(call_agent(agent, context) for context in contexts)))


async def test_parameters_are_filled_in_by_name(stored: Stored) -> None:
    """The model's endpoint is the attempt's base URL; the first resource of a kind counts."""
    context = with_resources(
        stored,
        prompt=PromptTemplate(template="{q}", engine="f-string"),
        first=ProxyLLM(endpoint="http://proxy/v1", model="m", api_key="k", sampling_parameters={"temperature": 1}),
        second=LLM(endpoint="http://other/v1", model="n"),
    )

    @rollout
    def agent(
        llm: LLM,
        question: str,
        *,
        rollout: AttemptedRollout,
        context: AttemptContext,
        prompt_template: PromptTemplate,
        tries: int = 3,
        **more: Any,
    ) -> list[object]:
        return [llm, question, rollout, context, prompt_template.format(q=question), tries, more]

    llm, question, given_rollout, given_context, prompt, tries, more = await call_agent(agent, context)
    assert llm == LLM(
        endpoint=f"http://proxy/rollout/{ROLLOUT}/attempt/{ATTEMPT}/v1",
        model="m",
        api_key="k",
        sampling_parameters={"temperature": 1},
    )
    assert (question, given_rollout, given_context) == ("task", context.rollout, context)
    assert (prompt, tries, more) == ("task", 3, {})


async def test_a_missing_resource_is_named(context: AttemptContext, stored: Stored) -> None:
    """The error says what the agent needs, and which rollout has not got it."""

    def with_model(task: object, llm: LLM) -> None: ...
    def with_prompt(task: object, prompt_template: PromptTemplate) -> None: ...

    for agent, kind in ((with_model, r"model \(llm or proxy_llm\)"), (with_prompt, "prompt template")):
        for bare in (context, with_resources(stored)):
            with pytest.raises(
                NotFound, match=f"the agent needs a {kind}; rollout '{ROLLOUT}' runs against .* without"
            ):
                await call_agent(agent, bare)


async def test_a_default_stands_in_for_a_missing_resource(context: AttemptContext) -> None:
    """A parameter with a default is optional."""

    def agent(task: object, llm: LLM | None = None) -> str:
        return "no model" if llm is None else llm.model

    assert await call_agent(agent, context) == "no model"


async def test_an_agent_without_parameters_is_called_without(context: AttemptContext) -> None:
    """An agent need not look at its task."""
    assert await call_agent(lambda: 4, context) == 4


async def test_objects_and_partials_are_agents_too(context: AttemptContext) -> None:
    """What can be called with a task can be an agent, async or not."""

    class Solver:
        async def __call__(self, task: dict[str, int]) -> int:
            return task["q"]

    async def power(exponent: int, task: dict[str, int]) -> int:
        return task["q"] ** exponent

    assert await call_agent(Solver(), context) == 2
    assert await call_agent(functools.partial(power, 3), context) == 8


async def test_a_coroutine_from_a_plain_function_is_awaited(context: AttemptContext) -> None:
    """A lambda around an async agent works."""

    async def agent(task: dict[str, int]) -> int:
        return task["q"]

    def around(task: dict[str, int]) -> Any:
        return agent(task)

    assert await call_agent(around, context) == 2


def test_a_decorated_function_is_still_a_function() -> None:
    """It can be called in its own tests, and keeps its name and words."""

    @rollout
    def agent(task: int, llm: str) -> str:
        """Answer."""
        return f"{task} {llm}"

    assert agent(3, llm="m") == "3 m"
    assert isinstance(agent, Agent)
    assert (agent.name.rpartition(".")[2], agent.__doc__) == ("agent", "Answer.")


def test_a_parameter_that_nobody_provides_is_refused_at_once() -> None:
    """The error names the parameter and what there is."""

    def agent(task: int, model: str) -> None: ...

    with pytest.raises(InvalidRequest, match=r"parameter 'model', which nothing provides.* llm, prompt_template"):
        rollout(agent)


def test_a_generator_is_refused_at_once() -> None:
    """Yielding rewards is not how an agent reports."""

    def agent(task: int) -> Iterator[float]:
        yield 1.0

    async def async_agent(task: int) -> AsyncIterator[float]:
        yield 1.0

    for generator in (agent, async_agent):
        with pytest.raises(InvalidRequest, match="is a generator; return"):
            rollout(generator)


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError("k"), TimeoutError(), NotFound("gone")])
async def test_an_agents_exception_comes_through(context: AttemptContext, error: Exception) -> None:
    """The same object is raised, from a task and from a thread."""

    async def async_agent(task: object) -> None:
        raise error

    def agent(task: object) -> None:
        raise error

    for failing in (async_agent, agent):
        with pytest.raises(type(error)) as caught:
            await call_agent(failing, context)
        assert caught.value is error


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration(3), asyncio.CancelledError()])
async def test_an_agent_in_a_thread_cannot_end_the_process(context: AttemptContext, error: BaseException) -> None:
    """What would stop the loop becomes an ordinary error that shows its cause."""

    def agent(task: object) -> None:
        raise error

    with pytest.raises(AgentError, match=f"the agent raised {type(error).__name__}") as caught:
        await call_agent(agent, context)
    assert caught.value.__cause__ is error


async def test_an_async_agent_cannot_exit_the_process(context: AttemptContext) -> None:
    """``sys.exit()`` in an agent fails its attempt, not the runner."""

    async def agent(task: object) -> None:
        raise SystemExit(1)

    with pytest.raises(AgentError, match=r"SystemExit\(1\), which would end the process"):
        await call_agent(agent, context)


async def test_a_cancelled_call_leaves_its_thread_alone(context: AttemptContext, stored: Stored) -> None:
    """The caller is free at once; what the thread still emits arrives late but whole."""
    started, proceed = threading.Event(), threading.Event()

    def agent(task: object) -> None:
        started.set()
        assert proceed.wait(20)
        emit_message("late")
        raise ValueError("nobody waits for this")

    with context.bound():
        running = asyncio.create_task(call_agent(agent, context))
        await until(started.is_set)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    proceed.set()
    await until(lambda: stored.spans, what="the late span")
