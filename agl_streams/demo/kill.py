"""Kill a runner while it holds work, and find out afterwards what became of that work."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final

from agl_streams import clock
from agl_streams.demo.stage import Stage
from agl_streams.lifecycle import WORKER_LOST
from agl_streams.models import AttemptedRollout
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore

LOOK_AGAIN_S: Final = 0.005  # a rollout of the demo takes some 50 ms, so one is soon caught in the act


@dataclass(frozen=True, slots=True)
class Killing:
    """A runner that was killed.

    Attributes:
        worker_id: its name.
        rollout_ids: what it held.
        at: Unix seconds.
    """

    worker_id: str
    rollout_ids: tuple[str, ...]
    at: float


async def kill_a_runner(store: StreamStore, stage: Stage) -> Killing:
    """SIGKILL the first runner once it holds an attempt.

    It is stopped first, so that what it holds cannot end between looking and killing.
    """
    worker_id, process = next(iter(stage.runners.items()))
    pid = process.pid
    if pid is None:
        raise RuntimeError(f"the runner {worker_id} was never started")
    while True:
        os.kill(pid, signal.SIGSTOP)
        held = await _held_by(store, worker_id)
        if held:
            stage.expect_death(worker_id)
            os.kill(pid, signal.SIGKILL)
            return Killing(worker_id, tuple(held), clock.now_s())
        os.kill(pid, signal.SIGCONT)
        await clock.sleep_s(LOOK_AGAIN_S)


async def recovered_within_s(store: StreamStore, killing: Killing) -> float:
    """Seconds from the kill until the last of the rollouts had a new attempt; each lost one is checked.

    Raises:
        RuntimeError: an attempt was not lost as it should be.
    """
    latest = killing.at
    for rollout_id in killing.rollout_ids:
        attempts = list(await store.query_attempts(rollout_id))
        lost, after = attempts[0], attempts[1:]
        if (lost.metadata or {}).get(REASON) != WORKER_LOST or not after:
            raise RuntimeError(f"the first attempt of {rollout_id} was not lost and repeated: {attempts}")
        latest = max(latest, after[0].start_time)
    return latest - killing.at


async def _held_by(store: StreamStore, worker_id: str) -> list[str]:
    running = await store.query_rollouts(status_in=["preparing", "running"])
    held = (
        rollout.rollout_id
        for rollout in running
        if isinstance(rollout, AttemptedRollout) and rollout.attempt.worker_id == worker_id
    )
    # One status is read after the other, and the span of a call on its way may move a rollout to the next meanwhile.
    return list(dict.fromkeys(held))
