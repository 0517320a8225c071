"""Kill a runner while it holds work, and find out afterwards what became of that work."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final

from agl_streams import clock
from agl_streams.demo.stage import Stage
from agl_streams.lifecycle import WORKER_LOST
from agl_streams.models import Attempt, AttemptedRollout
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


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of a rollout whose runner was killed.

    Attributes:
        lost: the attempt of that runner.
        retried: the attempt after it; None when there is none.
        after_s: seconds from the kill until that attempt began.
    """

    lost: Attempt
    retried: Attempt | None
    after_s: float

    @property
    def reason(self) -> str | None:
        """Why the attempt ended, as the store has noted it."""
        return (self.lost.metadata or {}).get(REASON)

    @property
    def complete(self) -> bool:
        """Whether the attempt was noticed as lost, and another runner took over and succeeded."""
        return (
            self.reason == WORKER_LOST
            and self.retried is not None
            and self.retried.status == "succeeded"
            and self.retried.worker_id != self.lost.worker_id
        )


async def kill_a_runner(store: StreamStore, stage: Stage) -> Killing:
    """SIGKILL the first runner once it holds an attempt."""
    worker_id = stage.runners[0]
    pid = stage.processes[worker_id].pid
    if pid is None:
        raise RuntimeError(f"the runner {worker_id} was never started")
    while True:
        # Stopped first, so that what it holds cannot end between looking and killing.
        os.kill(pid, signal.SIGSTOP)
        try:
            held = await _held_by(store, worker_id)
            if held:
                # Once more: what it had sent before it was stopped has arrived by now.
                held = await _held_by(store, worker_id)
            if held:
                stage.expect_death(worker_id)
                os.kill(pid, signal.SIGKILL)
                return Killing(worker_id, tuple(held), clock.now_s())
        finally:
            os.kill(pid, signal.SIGCONT)
        await clock.sleep_s(LOOK_AGAIN_S)


async def recoveries(store: StreamStore, killing: Killing) -> list[Recovery]:
    """What became of each rollout that the killed runner held."""
    found: list[Recovery] = []
    for rollout_id in killing.rollout_ids:
        attempts = list(await store.query_attempts(rollout_id))
        place = max(place for place, attempt in enumerate(attempts) if attempt.worker_id == killing.worker_id)
        after = attempts[place + 1 :]
        retried = after[0] if after else None
        found.append(Recovery(attempts[place], retried, retried.start_time - killing.at if retried else 0.0))
    return found


async def _held_by(store: StreamStore, worker_id: str) -> list[str]:
    running = await store.query_rollouts(status_in=["preparing", "running"])
    return [
        rollout.rollout_id
        for rollout in running
        if isinstance(rollout, AttemptedRollout) and rollout.attempt.worker_id == worker_id
    ]
