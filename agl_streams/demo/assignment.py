"""What a rollout of the demo is about; apart from the agent, so that the learner need not load a model's client."""

from __future__ import annotations

from typing import Any

import pydantic

from agl_streams.demo.problems import Problem


class Assignment(pydantic.BaseModel):
    """The input of a rollout.

    Attributes:
        problem: what is to be solved.
        task: names this try at it; with the seed it decides what the model samples.
        seed: of the run.
        stream: whether the agent reads the model's answers as streams.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    problem: Problem
    task: str
    seed: int
    stream: bool = True

    def as_input(self) -> dict[str, Any]:
        """The assignment as the JSON that a rollout is enqueued with."""
        return self.model_dump(mode="json")
