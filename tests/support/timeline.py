"""The server's time in the hands of a test: it stands still until it is moved, and the watchdog looks when told."""

from __future__ import annotations

from typing import Any

from agl_streams.models import Attempt, AttemptedRollout, Rollout
from agl_streams.store import StreamStore

BEGIN_US = 1_700_000_000_000_000
US_PER_S = 1_000_000


class Timeline:
    """The time by which all functions of a store judge."""

    def __init__(self, store: StreamStore) -> None:
        self.store = store
        self._now_us = BEGIN_US
        for shard in range(store.shards):
            store.functions(shard).clock_us = lambda: self._now_us

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self._now_us / US_PER_S

    async def watched(self) -> Timeline:
        """The watchdog has been looking for a long time already."""
        await self.look()
        return self

    async def look(self) -> int:
        """The watchdog looks once; returns how many attempts ended."""
        return sum([(await self.store.expire_once(shard)).ended for shard in range(self.store.shards)])

    def jumps(self, seconds: float) -> None:
        """Time passes and nobody looks."""
        self._now_us += round(seconds * US_PER_S)

    async def passes(self, seconds: float) -> None:
        """Time passes while the watchdog looks often enough to know of everything."""
        step_us = round(self.store.settings.lease_seconds * US_PER_S) // 3
        end_us = self._now_us + round(seconds * US_PER_S)
        while self._now_us < end_us:
            self._now_us = min(self._now_us + step_us, end_us)
            await self.look()

    async def take(self, **options: Any) -> AttemptedRollout:
        """The next rollout of the queue, which must be there."""
        taken = await self.store.dequeue_rollout(**options)
        assert taken is not None
        return taken

    async def rollout(self, rollout_id: str) -> Rollout:
        """How a rollout stands."""
        rollout = await self.store.get_rollout_by_id(rollout_id)
        assert rollout is not None
        return rollout

    async def attempt(self, rollout_id: str) -> Attempt:
        """How the newest attempt of a rollout stands."""
        attempt = await self.store.get_latest_attempt(rollout_id)
        assert attempt is not None
        return attempt

    async def statuses(self, rollout_id: str) -> tuple[str, str]:
        """Statuses of a rollout and of its newest attempt."""
        return (await self.rollout(rollout_id)).status, (await self.attempt(rollout_id)).status
