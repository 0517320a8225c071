"""Agents for real processes. Their task names a directory, through which the test and they signal each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agl_streams import AttemptContext, emit_reward, rollout
from agl_streams.config import load_settings
from tests.support.raw import Raw
from tests.support.waiting import until, until_blocking

PATIENCE_S = 60.0


def begun(task: dict[str, Any], context: AttemptContext) -> int:
    """Leave a file that tells of this attempt; returns the attempt's number."""
    number = context.attempt.sequence_id
    name = f"begun-{context.rollout.rollout_id}-{number}"
    (Path(task["directory"]) / name).write_text(context.attempt.worker_id or "")
    return number


@rollout
async def wait_for_file(task: dict[str, Any], context: AttemptContext) -> float:
    """Succeeds when the test makes the file ``go``."""
    begun(task, context)
    await until((Path(task["directory"]) / "go").exists, timeout_s=PATIENCE_S, what="the file")
    return 1.0


@rollout
def hang_the_first_time(task: dict[str, Any], context: AttemptContext) -> float:
    """The first attempt never ends; the others do at once."""
    if begun(task, context) == 1:
        until_blocking(lambda: False, timeout_s=PATIENCE_S, what="nothing")
    return 1.0


@rollout
async def block_for_ever(task: dict[str, Any], context: AttemptContext) -> None:
    """Blocks its event loop, so that its runner cannot hear anything."""
    begun(task, context)
    until_blocking(lambda: False, timeout_s=PATIENCE_S, what="nothing")


@rollout
async def block_the_loop(task: dict[str, Any], context: AttemptContext) -> None:
    """Blocks its event loop until its lease has been moved on by three leases, which nothing else can do for it."""
    begun(task, context)
    wait_for_renewals(load_settings().redis_url or "", task["leases"], context, task["lease_s"])
    emit_reward(1.0)


def wait_for_renewals(redis_url: str, leases: str, context: AttemptContext, lease_s: float) -> None:
    """Block until the lease of an attempt has been moved on by three leases.

    Args:
        leases: the key of the hash of leases.
    """
    member = f"{context.rollout.rollout_id}:{context.attempt.attempt_id}"
    with Raw(redis_url) as raw:

        def ends_at_s() -> float:
            return int(raw.execute("HGET", leases, member)) / 1_000_000

        first_s = ends_at_s()
        until_blocking(lambda: ends_at_s() > first_s + 3 * lease_s, what="a lease that has been renewed")


not_an_agent = 42


class NotAnAgent:
    """A class is none."""


def yielding(task: Any) -> Any:
    """A generator is none."""
    yield task


def plain(task: Any) -> float:
    """A plain function is one."""
    return float(task)
