"""The demo's agent: how it is graded, and how it works through the proxy, a real store and a runner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pydantic
import pytest

from agl_proxy.app import ProxyApp, ProxyOptions
from agl_streams import semconv
from agl_streams.adapters import TripletAdapter
from agl_streams.demo.agent import FIRST_STEP_WEIGHT, Assignment, grade, solve
from agl_streams.demo.chat_request import MODEL
from agl_streams.demo.policy import Policy, call_seed, weights_shape
from agl_streams.demo.problems import Problem, load_problems
from agl_streams.demo.prompts import SYSTEM_PROMPT, first_message, next_message
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.demo.tools import TOOLS
from agl_streams.models import LLM, ProxyLLM, Triplet
from agl_streams.store import StreamStore
from agl_workers.runner import Runner
from tests.demo.serving import Scripted, Served, served, untrained
from tests.proxy.support import serving
from tests.support.waiting import until

PROBLEM = load_problems()[0]
SEED = 11


def right_tools(problem: Problem) -> list[str]:
    return [step.tool for step in problem.steps]


def wrong_tool(tool: str) -> str:
    """Some other tool."""
    return next(name for name in TOOLS if name != tool)


def taught(problem: Problem, tools: list[str]) -> Policy:
    """A policy that took gradient steps towards these tools for the steps of the problem, until it prefers them."""
    tokenizer = Tokenizer.load()
    opening = [("system", SYSTEM_PROMPT), ("user", first_message(problem))]
    number = problem.steps[0].apply(tools[0], 0.0)
    following = [*opening, ("assistant", tools[0]), ("user", next_message(problem, 1, tools[0], number))]
    prompts = [tokenizer.encode_chat(messages) for messages in (opening, following)]
    wanted = [tokenizer.piece_id(tool) for tool in tools]
    policy = Policy(tokenizer, np.zeros(weights_shape(tokenizer)), 1)
    while [int(policy.logprobs(prompt).argmax()) for prompt in prompts] != wanted:
        gradient = np.zeros_like(policy.weights)
        for prompt, token_id in zip(prompts, wanted, strict=True):
            policy.add_gradient(gradient, prompt, [token_id, tokenizer.end_id], 1.0)
        policy = Policy(tokenizer, policy.weights + gradient, policy.version + 1)
    return policy


def input_of(problem: Problem, task: str, *, stream: bool) -> dict[str, Any]:
    return Assignment(problem=problem, task=task, seed=SEED, stream=stream).as_input()


@asynccontextmanager
async def proxied(store: StreamStore, policy: Policy, **sampling: Any) -> AsyncGenerator[str]:
    """The policy behind the proxy as a resource of the store; its resources id."""
    async with (
        served(policy) as server,
        ProxyApp(store, ProxyOptions(upstream=server.url)) as app,
        serving(app) as url,
    ):
        resource = ProxyLLM(endpoint=f"{url}/v1", model=MODEL, sampling_parameters=sampling)
        yield (await store.add_resources({"llm": resource})).resources_id


async def worked_on(store: StreamStore, resources_id: str, *inputs: dict[str, Any]) -> list[list[Triplet]]:
    """Each input as a rollout, done by a runner: its triplets; every call must be a complete capture."""
    ids = [(await store.enqueue_rollout(task, resources_id=resources_id)).rollout_id for task in inputs]
    await Runner(store, solve, worker_id="w-1", concurrency=len(inputs)).run_once()
    found: list[list[Triplet]] = []
    for rollout in sorted(await store.wait_for_rollouts(rollout_ids=ids), key=lambda done: ids.index(done.rollout_id)):
        assert rollout.status == "succeeded"
        spans = list(await store.query_spans(rollout.rollout_id))
        calls = [span for span in spans if semconv.is_model_call(span)]
        assert [call.attributes[semconv.CALL_COMPLETE] for call in calls] == [True, True]
        batch = TripletAdapter(reward_match="final").adapt(spans)
        assert not batch.left_out
        found.append(list(batch.triplets))
    return found


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("right", "reward"),
    [
        ((True, True), 1.0),
        ((True, False), FIRST_STEP_WEIGHT),
        ((False, True), 1.0 - FIRST_STEP_WEIGHT),
        ((False, False), 0.0),
    ],
)
async def test_the_right_tools_earn_the_reward(
    store: StreamStore, right: tuple[bool, bool], reward: float, stream: bool
) -> None:
    """A policy that knows both tools earns 1 for every call of the rollout, one that knows only one of them less."""
    tools = [tool if known else wrong_tool(tool) for tool, known in zip(right_tools(PROBLEM), right, strict=True)]
    async with proxied(store, taught(PROBLEM, tools), temperature=0) as resources_id:
        (triplets,) = await worked_on(store, resources_id, input_of(PROBLEM, "t", stream=stream))
    assert [triplet.reward for triplet in triplets] == [reward, reward]
    said = [Tokenizer.load().decode(triplet.response.token_ids) for triplet in triplets]
    assert said == tools


async def test_captures_hold_what_the_policy_sampled(store: StreamStore) -> None:
    """Triplets of streamed and whole calls are equal, and are what the policy samples from the seeds of the calls."""
    policy = untrained()
    tasks = [f"0-{number}" for number in range(4)]
    async with proxied(store, policy) as resources_id:
        inputs = [input_of(PROBLEM, task, stream=stream) for stream in (True, False) for task in tasks]
        found = await worked_on(store, resources_id, *inputs)
    assert [[(t.prompt.token_ids, t.response, t.reward) for t in triplets] for triplets in found[:4]] == [
        [(t.prompt.token_ids, t.response, t.reward) for t in triplets] for triplets in found[4:]
    ]
    for task, triplets in zip(tasks, found, strict=False):
        for index, triplet in enumerate(triplets):
            rng = np.random.default_rng(call_seed(SEED, task, index))
            tokens = list(policy.sample(triplet.prompt.token_ids, rng))
            assert triplet.response.token_ids == [token.id for token in tokens]
            assert triplet.response.logprobs == [token.logprob for token in tokens]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("script", [[], [0], "Sub"], ids=["nothing", "a control token", "another word"])
async def test_an_answer_that_is_no_tool_earns_nothing(script: list[int] | str, stream: bool) -> None:
    """When the model names no tool the number stays as it is, and the agent goes on to the end."""
    ids = Tokenizer.load().encode(script) if isinstance(script, str) else script
    async with served(Scripted(ids)) as server:
        assert await solve(input_of(PROBLEM, "t", stream=stream), llm_of(server)) == 0.0


def llm_of(server: Served, path: str = "/v1") -> LLM:
    return LLM(endpoint=f"{server.url}{path}", model=MODEL)


async def test_rollouts_share_connections() -> None:
    """Attempts one after another use one connection."""
    async with served(untrained()) as server:
        for task in ("a", "b", "c"):
            await solve(input_of(PROBLEM, task, stream=True), llm_of(server))
        assert server.runner.server is not None
        assert len(server.runner.server.connections) == 1


async def test_connections_end_with_the_event_loop() -> None:
    """When an event loop ends that ran agents, their connections are closed."""
    async with served(untrained()) as server:
        listener = server.runner.server
        assert listener is not None
        await asyncio.to_thread(asyncio.run, solve(input_of(PROBLEM, "t", stream=True), llm_of(server)))
        assert listener.requests_count > 0
        await until(lambda: not listener.connections, what="the end of the agent's connections")


def test_grading() -> None:
    """The answer earns 1; without it the steps with the right tool earn their share."""
    first, second = right_tools(PROBLEM)
    for tools, reward in (
        ([first, second], 1.0),
        ([first, wrong_tool(second)], FIRST_STEP_WEIGHT),
        ([wrong_tool(first), second], 1.0 - FIRST_STEP_WEIGHT),
        ([wrong_tool(first), wrong_tool(second)], 0.0),
    ):
        assert grade(PROBLEM, tools, PROBLEM.solve(tools)) == reward


@pytest.mark.parametrize("task", [{}, {"problem": "wp-001"}, {**input_of(PROBLEM, "t", stream=True), "more": 1}])
async def test_another_input_is_refused(task: dict[str, Any]) -> None:
    """An input that is no assignment is an error before the model is asked."""
    with pytest.raises(pydantic.ValidationError):
        await solve(task, LLM(endpoint="http://127.0.0.1:9/v1", model=MODEL))
