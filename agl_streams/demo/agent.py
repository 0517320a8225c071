"""The demo's agent: solves a word problem step by step and asks the model which tool each step needs.

It is an ordinary agent, written with the official OpenAI client. Nothing in it knows of tokens, spans or training: the
proxy behind ``llm.endpoint`` records its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from agl_streams.agent import rollout
from agl_streams.demo.assignment import Assignment
from agl_streams.demo.policy import call_seed
from agl_streams.demo.problems import Problem
from agl_streams.demo.prompts import SYSTEM_PROMPT, first_message, next_message
from agl_streams.models import LLM

FIRST_STEP_WEIGHT: Final = 0.5
"""Share of the reward that the first step earns; the others share the rest. The answer needs all of them, and an
untrained model finds it once in sixteen tries: too seldom to be the only reward."""
MAX_ANSWER_TOKENS: Final = 8  # a tool's name and the end are two


@rollout
async def solve(task: dict[str, Any], llm: LLM) -> float:
    """Solve the problem of an `Assignment` and return the reward.

    Raises:
        pydantic.ValidationError: the input is no assignment.
        openai.APIError: the model gives no answer.
    """
    assignment = Assignment.model_validate(task)
    client = await _client(llm)
    problem = assignment.problem
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM_PROMPT}]
    chosen: list[str] = []
    number = 0.0
    for index, step in enumerate(problem.steps):
        text = next_message(problem, index, chosen[-1], number) if chosen else first_message(problem)
        messages.append({"role": "user", "content": text})
        tool = await _ask(client, llm, messages, call_seed(assignment.seed, assignment.task, index), assignment.stream)
        messages.append({"role": "assistant", "content": tool})
        chosen.append(tool.strip())
        number = step.apply(chosen[-1], number)
    return grade(problem, chosen, number)


def grade(problem: Problem, tools: Sequence[str], number: float) -> float:
    """The reward, from 0 to 1: 1 for the answer, or else what the steps with the right tool have earned."""
    if problem.is_answer(number):
        return 1.0
    first, *others = (tool == step.tool for tool, step in zip(tools, problem.steps, strict=True))
    return FIRST_STEP_WEIGHT * first + (1.0 - FIRST_STEP_WEIGHT) * sum(others) / len(others)


async def _ask(
    client: AsyncOpenAI, llm: LLM, messages: list[ChatCompletionMessageParam], seed: int, stream: bool
) -> str:
    """The model's answer."""
    if not stream:
        answer = await client.chat.completions.create(
            model=llm.model,
            messages=messages,
            max_tokens=MAX_ANSWER_TOKENS,
            seed=seed,
            extra_body=llm.sampling_parameters,
        )
        return answer.choices[0].message.content or ""
    chunks = await client.chat.completions.create(
        model=llm.model,
        messages=messages,
        max_tokens=MAX_ANSWER_TOKENS,
        seed=seed,
        stream=True,
        extra_body=llm.sampling_parameters,
    )
    return "".join([choice.delta.content or "" async for chunk in chunks for choice in chunk.choices])


# One pool of connections for all attempts of a process, though each has a base URL of its own. By loop, because
# connections belong to one.
_clients: dict[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, AsyncGenerator[None]]] = {}


async def _client(llm: LLM) -> AsyncOpenAI:
    """A client of this attempt's base URL, on the connections of all."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        shared = AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key or "none")
        closer = _closed_with_the_loop(loop, shared)
        _clients[loop] = (shared, closer)
        await anext(closer)
    return _clients[loop][0].with_options(base_url=llm.endpoint, api_key=llm.api_key or "none")


async def _closed_with_the_loop(loop: asyncio.AbstractEventLoop, client: AsyncOpenAI) -> AsyncGenerator[None]:
    """Closes the client when the event loop ends: that is when the loop closes its open generators."""
    try:
        async with client:
            yield
    finally:
        del _clients[loop]
