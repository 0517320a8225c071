"""The places of a runner: the attempts that it works on at once, from begin to outcome."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, assert_never

import structlog

from agl_streams import clock
from agl_streams.connect import Store
from agl_streams.logger import get_logger
from agl_streams.models import AttemptedRollout
from agl_workers.attempt_run import AttemptRun
from agl_workers.lease_keeper import LeaseKeeper
from agl_workers.outcome import Outcome

LAST_WORDS_S: Final = 2.0  # how long a cancelled agent may take to end; then the runner ends without it

_log = get_logger()


class Places:
    """A fixed number of places, each free or taken by an attempt.

    Attributes:
        running: the tasks of the attempts that are worked on now.
        outcomes: what became of the others.
    """

    def __init__(
        self, store: Store, agent: Callable[..., Any], keeper: LeaseKeeper, count: int, limit: int | None
    ) -> None:
        """
        Args:
            count: attempts at once.
            limit: attempts ever; None for no limit.
        """
        self.running: dict[asyncio.Task[None], AttemptRun] = {}
        self.outcomes: Counter[Outcome] = Counter()
        self._store = store
        self._agent = agent
        self._keeper = keeper
        self._count = count
        self._left = limit

    @property
    def free(self) -> int:
        """How many attempts may be begun now."""
        free = self._count - len(self.running)
        return free if self._left is None else min(free, self._left)

    @property
    def used_up(self) -> bool:
        """Whether no attempt may be begun any more."""
        return self._left == 0

    def begin(self, rollout: AttemptedRollout) -> None:
        """Start to work on an attempt, whose lease is kept from now on."""
        run = AttemptRun(self._store, self._agent, rollout)
        self._keeper.hold(run.ids, partial(asyncio.get_running_loop().call_soon_threadsafe, run.lose))
        task = asyncio.create_task(self._finish(run))
        self.running[task] = run
        task.add_done_callback(self.running.pop)
        if self._left is not None:
            self._left -= 1

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until all places are free, for so many seconds at most."""
        if self.running:
            await asyncio.wait({*self.running}, timeout=timeout)

    async def abandon(self) -> None:
        """Stop what still runs and let its leases run out."""
        for run in self.running.values():
            self._keeper.release(run.ids)
            run.abandon()
        await self.wait(timeout=LAST_WORDS_S)
        for run in self.running.values():
            _log.error("agent_ignores_cancellation", rollout_id=run.ids[0], attempt_id=run.ids[1])

    async def _finish(self, run: AttemptRun) -> None:
        rollout_id, attempt_id = run.ids
        with structlog.contextvars.bound_contextvars(rollout_id=rollout_id, attempt_id=attempt_id):
            _log.debug("attempt_begun", number=run.rollout.attempt.sequence_id)
            started_s = clock.monotonic_s()
            try:
                outcome = await run.execute()
            finally:
                self._keeper.release(run.ids)
            self.outcomes[outcome] += 1
            _log_outcome(outcome, clock.monotonic_s() - started_s)


def _log_outcome(outcome: Outcome, seconds: float) -> None:
    match outcome:
        case Outcome.SUCCEEDED | Outcome.FAILED:
            _log.info("attempt_finished", outcome=outcome.value, seconds=round(seconds, 3))
        case Outcome.SUPERSEDED:
            _log.warning("attempt_given_up", outcome=outcome.value)
        case Outcome.ABANDONED | Outcome.UNREPORTED:
            _log.warning("attempt_left_to_its_lease", outcome=outcome.value)
        case _:
            assert_never(outcome)
