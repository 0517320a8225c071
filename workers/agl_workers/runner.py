"""The runner: takes rollouts from the queue, works on several at once, and gives up what it cannot finish in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from agl_streams.connect import Consumer, Store, consumer_of
from agl_streams.errors import InvalidRequest, StoreUnavailable
from agl_streams.logger import get_logger
from agl_streams.models import AttemptedRollout
from agl_workers.lease_keeper import LeaseKeeper
from agl_workers.loops import persist
from agl_workers.outcome import Outcome
from agl_workers.places import Places

DRAIN_S: Final = 25.0  # how long a stopped runner may finish what it holds: Kubernetes kills after 30 s

_log = get_logger()


@dataclass(frozen=True, slots=True)
class _Shift:
    """What a runner has while it works; ``ended`` is done when the keeper's thread has ended."""

    places: Places
    consumer: Consumer
    keeper: LeaseKeeper
    ended: asyncio.Future[Any]


class Runner:
    """Works on up to ``concurrency`` rollouts at once.

    Attributes:
        worker_id: names the worker and its consumer.
    """

    def __init__(
        self,
        store: Store,
        agent: Callable[..., Any],
        *,
        worker_id: str,
        concurrency: int = 1,
        lease_seconds: float | None = None,
        max_rollouts: int | None = None,
        drain_seconds: float = DRAIN_S,
    ) -> None:
        """
        Args:
            agent: what `agl_streams.agent.rollout` decorated, or a plain or async function of a task.
            worker_id: unique among living runners.
            lease_seconds: how soon others notice that this runner is gone; None takes the store's.
            max_rollouts: stop after so many.
            drain_seconds: how long `run` may finish what it holds once it is to stop.

        Raises:
            InvalidRequest: a number that is none.
        """
        for name, number in (("concurrency", concurrency), ("max_rollouts", max_rollouts), ("lease", lease_seconds)):
            if number is not None and not number > 0:
                raise InvalidRequest(f"{name} of runner {worker_id!r} must be above 0, got {number!r}")
        self.worker_id = worker_id
        self._store = store
        self._agent = agent
        self._concurrency = concurrency
        self._lease_s = store.settings.lease_seconds if lease_seconds is None else lease_seconds
        self._max_rollouts = max_rollouts
        self._drain_s = drain_seconds

    async def run(self, stop: asyncio.Event) -> None:
        """Take and work until ``stop`` is set or ``max_rollouts`` are done.

        Once stopped it takes no more, and finishes what it holds within the drain time. What is not done by then is
        cancelled and left to its lease: when that has run out the rollout is queued again, and no attempt is used up.
        A server that is away is waited for.

        Raises:
            AglError: the store can never serve this runner, or leases can no longer be renewed.
        """
        async with self._shift() as shift:
            _log.info("runner_started", concurrency=self._concurrency, lease_seconds=self._lease_s)
            stopping = asyncio.create_task(stop.wait())
            try:
                while not (stop.is_set() or shift.places.used_up):
                    await self._fill(shift, stop, stopping)
                await self._drain(shift, stopping)
            finally:
                stopping.cancel()
                await shift.places.abandon()
            _log.info("runner_stopped", **{outcome.value: count for outcome, count in shift.places.outcomes.items()})

    async def run_once(self) -> list[Outcome]:
        """Take as many rollouts as there are places, finish them, and return what became of them.

        Waits for work for as long as a blocked read lasts; an empty list means that there was none.

        Raises:
            AglError: as `run`; StoreUnavailable as well.
        """
        async with self._shift() as shift:
            for rollout in await shift.consumer.next(shift.places.free):
                shift.places.begin(rollout)
            try:
                await shift.places.wait()
            finally:
                await shift.places.abandon()
            shift.keeper.check()
            return list(shift.places.outcomes.elements())

    @asynccontextmanager
    async def _shift(self) -> AsyncGenerator[_Shift]:
        """What is needed to work; afterwards the consumer has left its group and the keeper's thread has ended."""
        keeper = LeaseKeeper(self._store, self.worker_id, lease_seconds=self._lease_s, concurrency=self._concurrency)
        with structlog.contextvars.bound_contextvars(worker_id=self.worker_id):
            try:
                await keeper.start()
                consumer = consumer_of(self._store, self.worker_id, self._lease_s)
                places = Places(self._store, self._agent, keeper, self._concurrency, self._max_rollouts)
                try:
                    yield _Shift(places, consumer, keeper, asyncio.wrap_future(keeper.ended))
                finally:
                    await _leave(consumer)
            finally:
                await keeper.close()

    async def _fill(self, shift: _Shift, stop: asyncio.Event, stopping: asyncio.Task[Any]) -> None:
        """Wait for a free place, then for work for the free places, and begin it."""
        if shift.places.free:
            for rollout in await _take(shift, stop, stopping):
                shift.places.begin(rollout)
        else:
            await _first_of(shift, stopping, *shift.places.running)
        shift.keeper.check()

    async def _drain(self, shift: _Shift, stopping: asyncio.Task[Any]) -> None:
        """Wait for what is held: without limit after ``max_rollouts``, for the drain time after a stop."""
        places = shift.places
        while places.running and not stopping.done():
            await _first_of(shift, stopping, *places.running)
            shift.keeper.check()
        if places.running:
            _log.info("runner_draining", held=len(places.running), drain_seconds=self._drain_s)
            await places.wait(timeout=self._drain_s)


async def _take(shift: _Shift, stop: asyncio.Event, stopping: asyncio.Task[Any]) -> list[AttemptedRollout]:
    """Work for the free places, or none when the runner is to stop. What was begun by then is returned all the same."""
    call = partial(shift.consumer.next, shift.places.free)
    taking = asyncio.create_task(persist(call, "take_delayed", stop=stop))
    try:
        await _first_of(shift, stopping, taking)
    finally:
        if not taking.done():
            await shift.consumer.stop()
            await asyncio.wait({taking})
    try:
        return taking.result()
    except StoreUnavailable:
        # Only once `stop` is set. What was begun without our hearing of it is left to its lease.
        return []


async def _first_of(shift: _Shift, *awaited: asyncio.Future[Any]) -> None:
    """Wait until one of them is done, or the keeper has ended."""
    await asyncio.wait({shift.ended, *awaited}, return_when=asyncio.FIRST_COMPLETED)


async def _leave(consumer: Consumer) -> None:
    try:
        await consumer.close()
    except StoreUnavailable as error:
        # What it was handed and never began, the watchdog gives back.
        _log.warning("runner_left_without_saying", error=str(error))
