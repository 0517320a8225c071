"""The watchdog: ends attempts that are overdue, so that nothing depends on somebody looking."""

from __future__ import annotations

import asyncio
from typing import Final

from agl_streams import clock
from agl_streams.errors import NamespaceError, StoreUnavailable
from agl_streams.function_types import ExpireResult
from agl_streams.logger import get_logger
from agl_streams.store import StreamStore
from agl_workers.bell import LogBell
from agl_workers.loops import persist, set_within, together

LOOKS_PER_LEASE: Final = 6  # expire gives grace after a third of a lease without it; twice as often leaves a margin
SHORTEST_PAUSE_S: Final = 0.05  # deadlines of many attempts are seconds, and need no call each
LATE_S: Final = 0.001  # a deadline is passed strictly after its time
US_PER_S: Final = 1_000_000
LOOKS_PER_IDLE_TIME: Final = 24  # with the usual day, workers are looked at every hour

_log = get_logger()


class Watchdog:
    """Expires one shard. Two of them on one shard do no harm: an attempt ends once."""

    def __init__(self, store: StreamStore, shard: int) -> None:
        self._store = store
        self._shard = shard
        self._longest_s = store.settings.lease_seconds / LOOKS_PER_LEASE
        self._shortest_s = min(SHORTEST_PAUSE_S, self._longest_s)
        self._retire_every_s = store.settings.worker_idle_seconds / LOOKS_PER_IDLE_TIME
        # Whoever lives is heard of within a lease, however long watchdog and server were away.
        self._retire_at_s = clock.monotonic_s() + min(store.settings.lease_seconds, self._retire_every_s)

    async def run_once(self) -> ExpireResult:
        """End what is overdue now, a bounded number of attempts.

        Raises:
            Upgrade: a newer release has written here.
            StoreUnavailable: the server is away.
        """
        result = await self._store.expire_once(self._shard)
        if result.ended or result.redelivered:
            _log.info("expired", shard=self._shard, attempts=result.ended, entries=result.redelivered)
        return result

    async def retire_once(self) -> list[str]:
        """Forget the workers that are gone; their ids.

        Raises:
            As `run_once`.
        """
        retired = await self._store.retire_workers_once(self._shard)
        if retired:
            _log.info("workers_retired", shard=self._shard, workers=len(retired))
        return retired

    async def run(self, stop: asyncio.Event) -> None:
        """End attempts as they become overdue, until ``stop`` is set. A server that is away is waited for.

        Raises:
            Upgrade: a newer release has written here; its deadlines may mean something else.
        """
        bell = LogBell(self._store, self._shard)
        await together(bell.run(stop), self.follow(bell, stop))

    async def follow(self, bell: LogBell, stop: asyncio.Event) -> None:
        """As `run`, for a bell that somebody else keeps running.

        It looks at the next deadline that it knows, and whenever the log has grown: every deadline that comes nearer
        comes with an event.
        """
        rung = bell.listen()
        try:
            while not stop.is_set():
                rung.clear()
                rest_s = await persist(self._look, "expire_delayed", stop=stop, shard=self._shard)
                if not await set_within(stop, self._shortest_s):
                    await set_within(rung, rest_s - self._shortest_s)
        except NamespaceError as error:
            _log.error("expire_impossible", shard=self._shard, error=str(error))
            raise
        except StoreUnavailable:
            _log.debug("watchdog_stopped_while_store_away", shard=self._shard)

    async def _look(self) -> float:
        """End all that is overdue. Returns for how many seconds there is nothing to see."""
        result = await self.run_once()
        while result.more:
            result = await self.run_once()
        if clock.monotonic_s() >= self._retire_at_s:
            await self.retire_once()
            self._retire_at_s = clock.monotonic_s() + self._retire_every_s
        longest_s = min(self._longest_s, self._retire_at_s - clock.monotonic_s())
        if result.next_deadline_us is None:
            return longest_s
        due_s = (result.next_deadline_us - await self._store.functions(self._shard).time_us()) / US_PER_S + LATE_S
        return min(due_s, longest_s)
