"""The demo's tasks: two-step word problems, one JSON object a line, checked when they are loaded.

A problem is only of use when the wrong tools give the wrong answer, so that is part of the check.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self

import pydantic

from agl_streams.demo.tools import TOOLS, use_tool
from agl_streams.errors import InvalidRequest

ToolName = Literal["add", "subtract", "multiply", "divide"]
# Two results nearer than this are the same number: answers are whole, and only a wrong tool leaves a fraction.
ANSWER_TOLERANCE = 1e-6


class Step(pydantic.BaseModel):
    """One step of a problem.

    Attributes:
        given: the sentence on which the step rests.
        ask: what the step finds out.
        tool: the right tool.
        numbers: its two operands; None stands for the result of the step before.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    given: str = pydantic.Field(min_length=1)
    ask: str = pydantic.Field(min_length=1)
    tool: ToolName
    numbers: tuple[int | None, int | None]

    def apply(self, tool: str, previous: float) -> float:
        """The number that ``tool`` makes of this step; ``previous`` unchanged when the tool gives none."""
        left, right = (previous if number is None else float(number) for number in self.numbers)
        result = use_tool(tool, left, right)
        return previous if result is None else result


class Problem(pydantic.BaseModel):
    """A word problem, its steps and its answer.

    Attributes:
        id: unique in its file.
        text: the whole problem, as a person would read it.
        steps: in the order in which they are solved.
        answer: the result of the last step.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    id: str = pydantic.Field(min_length=1)
    text: str = pydantic.Field(min_length=1)
    steps: tuple[Step, ...] = pydantic.Field(min_length=2)
    answer: int

    @pydantic.model_validator(mode="after")
    def _only_the_right_tools_give_the_answer(self) -> Self:
        if None in self.steps[0].numbers:
            raise ValueError("the first step has no result before it, so its numbers must be given")
        right = tuple(step.tool for step in self.steps)
        if not self.is_answer(self.solve(right)):
            raise ValueError(f"{' then '.join(right)} gives {self.solve(right):g}, not the answer {self.answer}")
        for tools in itertools.product(TOOLS, repeat=len(self.steps)):
            if tools != right and self.is_answer(self.solve(tools)):
                raise ValueError(f"{' then '.join(tools)} gives the answer {self.answer} too")
        return self

    def solve(self, tools: Sequence[str]) -> float:
        """The number that comes out when ``tools`` are used, one for each step."""
        number = 0.0
        for step, tool in zip(self.steps, tools, strict=True):
            number = step.apply(tool, number)
        return number

    def is_answer(self, number: float) -> bool:
        """Whether ``number`` is the answer of this problem."""
        return abs(number - self.answer) <= ANSWER_TOLERANCE


def load_problems(path: Path | None = None) -> list[Problem]:
    """The problems of a JSONL file; without a path, the ones of the project.

    Raises:
        InvalidRequest: a line is no valid problem (the message names the line), an id comes twice, or there is none.
    """
    source = files("agl_streams.demo").joinpath("problems.jsonl") if path is None else path
    problems: dict[str, Problem] = {}
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            problem = Problem.model_validate_json(line)
        except pydantic.ValidationError as error:
            raise InvalidRequest(f"{source.name} line {number} is not a problem: {error}") from error
        if problem.id in problems:
            raise InvalidRequest(f"{source.name} line {number}: the id {problem.id!r} comes twice; ids must differ")
        problems[problem.id] = problem
    if not problems:
        raise InvalidRequest(f"{source.name} holds no problems; the demo needs at least one")
    return list(problems.values())
