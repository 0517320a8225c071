"""What the agent writes to the model."""

from __future__ import annotations

from agl_streams.demo.problems import Problem

SYSTEM_PROMPT = (
    "You solve word problems one step at a time. "
    "Your tools are add, subtract, multiply and divide. Answer with the name of the tool that the step needs."
)


def first_message(problem: Problem) -> str:
    """The user's first message: the problem, and the first step on a line of its own."""
    return f"{problem.text}\n{_step_line(problem, 0)}"


def next_message(problem: Problem, index: int, tool: str, result: float) -> str:
    """The user's message before step ``index`` (from 0): what the last tool gave, and the next step on its own line."""
    return f"The tool {tool} gives {result:g}.\n{_step_line(problem, index)}"


def _step_line(problem: Problem, index: int) -> str:
    step = problem.steps[index]
    return f"Step {index + 1}: {step.given} {step.ask}"
