"""How much there is: the counts of a namespace, from its indexes and totals, without looking at a single rollout."""

from __future__ import annotations

from typing import Any

from agl_streams import clock
from agl_streams.store.base import StoreBase


class StatisticsMixin(StoreBase):
    """What it adds up to."""

    async def statistics(self) -> dict[str, Any]:
        """The counts of the namespace at this moment, under Agent-lightning's names. The sums are settled first.

        Returns:
            ``name``, ``total_rollouts``, ``total_attempts``, ``total_spans``, ``total_resources``, ``total_workers``
            and ``uptime`` (seconds since this process opened the store).
        """
        await self.settle()
        rollouts = attempts = spans = resources = 0
        workers: set[str] = set()
        for functions in self._functions:
            keys = functions.keys
            replies: Any = await self.connection.pipeline(
                [("ZCARD", keys.created), ("HMGET", keys.meta, "attempts", "spans"), ("ZCARD", keys.resources)]
            )
            rollouts += replies[0]
            attempts += int(replies[1][0] or 0)
            spans += int(replies[1][1] or 0)
            resources += replies[2]
            for index in (keys.workers, keys.live_workers):
                workers.update([one async for one in self._members(index)])
        return {
            "name": "StreamStore",
            "total_rollouts": rollouts,
            "total_attempts": attempts,
            "total_spans": spans,
            "total_resources": resources,
            "total_workers": len(workers),
            "uptime": clock.monotonic_s() - self._opened_s,
        }
