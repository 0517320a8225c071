"""What the runners of the chaos tests run. A task that names a directory signals through it, as files."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from agl_streams import AttemptContext, clock, emit_message, rollout
from tests.support.waiting import until

PATIENCE_S = 60.0
SPANS = 3
"""Spans of an attempt of `some_work` that succeeded: two messages and the reward that it returns."""


@rollout
async def some_work(task: dict[str, Any], context: AttemptContext) -> float:
    """Takes some milliseconds, with a span stored on the way."""
    emit_message("begun")
    await clock.sleep_s(task["ms"] / 2000)
    await context.flush()
    await clock.sleep_s(task["ms"] / 2000)
    emit_message("done")
    return 1.0


@rollout
async def nothing(task: dict[str, Any]) -> float:
    """As little as an agent can do: its reward is its only span."""
    return 1.0


@rollout
async def wait_for_file(task: dict[str, Any], context: AttemptContext) -> float:
    """Tells that it has begun; succeeds when the test makes the file ``go``."""
    begun(task, context)
    await until((Path(task["directory"]) / "go").exists, timeout_s=PATIENCE_S, what="the file")
    return 1.0


@rollout
async def hang_the_first_time(task: dict[str, Any], context: AttemptContext) -> float:
    """The first attempt never ends; the others do at once."""
    if begun(task, context) == 1:
        await until(lambda: False, timeout_s=PATIENCE_S, what="nothing")
    return 1.0


@rollout
async def kill_if_poison(task: dict[str, Any], context: AttemptContext) -> float:
    """A task that is poison kills the process that runs it."""
    begun(task, context)
    if task["poison"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0


def begun(task: dict[str, Any], context: AttemptContext) -> int:
    """Leave a file that tells of this attempt; returns the attempt's number."""
    number = context.attempt.sequence_id
    name = f"begun-{context.rollout.rollout_id}-{number}"
    (Path(task["directory"]) / name).write_text(context.attempt.worker_id or "")
    return number


def has_begun(directory: Path, rollout_id: str, number: int) -> bool:
    """Whether that attempt of a rollout has told that it has begun."""
    return (directory / f"begun-{rollout_id}-{number}").exists()


def executions(directory: Path, rollout_id: str) -> int:
    """How often a rollout was run."""
    return len(list(directory.glob(f"begun-{rollout_id}-*")))
