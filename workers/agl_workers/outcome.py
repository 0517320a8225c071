"""How the work on one attempt can end, from the runner's side."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Outcome(StrEnum):
    """What became of an attempt that a runner took."""

    SUCCEEDED = "succeeded"
    """The agent's result is stored and reported."""
    FAILED = "failed"
    """The agent raised, or gave no result that can be stored; reported with the reason."""
    SUPERSEDED = "superseded"
    """The attempt was taken away (superseded, ended or gone): the agent was stopped, nothing is reported."""
    ABANDONED = "abandoned"
    """The runner had to stop before the agent was done: its lease runs out, and the rollout is queued again."""
    UNREPORTED = "unreported"
    """The agent was done, but its report did not reach the store: as `ABANDONED`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the runner will report of an attempt.

    Attributes:
        reason: one line on why it failed.
    """

    status: Literal["succeeded", "failed"]
    reason: str | None = None
