"""Workers that are gone are forgotten: no runner that came and went for an hour is listed for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, cast

from agl_streams.errors import CommandFailed
from agl_streams.functions import READ_LIMIT, ShardFunctions
from agl_streams.keys import unescape
from agl_streams.library import CLAIM_CONSUMER
from agl_streams.lifecycle import ATTEMPT_OPEN
from agl_streams.models import Worker
from agl_streams.store.base import US_PER_S, StoreBase, us
from agl_streams.store.workers import last_seen, merge_workers

US_PER_MS: Final = 1000


class RetirementMixin(StoreBase):
    """What is forgotten."""

    async def retire_workers_once(self, shard: int) -> list[str]:
        """Forget the workers and consumers of one shard that were idle for ``worker_idle_seconds`` with nothing open.

        What the watchdog does now and then. A worker stays while it shows an attempt, is the one of a rollout's newest
        and open attempt, holds entries of the queue, polls for work, or was seen in another shard. Nothing of what it
        did is forgotten, and when it comes back it is there again.

        Returns:
            The ids of the workers that were retired.
        """
        functions = self._functions[shard]
        polling, silent = await self._consumers(functions)
        names = silent | {one async for one in self._members(functions.keys.workers)}
        names |= {one async for one in self._members(functions.keys.live_workers)}
        idle = [one async for one in self._idle(sorted(names - polling), await functions.time_us())]
        if not idle:
            return []
        holders = {one async for one in self._holders()}
        free = [worker for worker in idle if worker not in holders]
        # Judged again, worker by worker, in the step that forgets it: one that has begun something meanwhile stays.
        retired = await functions.retire_workers(free, us(self.settings.worker_idle_seconds))
        return [unescape(worker) for worker in retired]

    async def _consumers(self, functions: ShardFunctions) -> tuple[set[str], set[str]]:
        """The consumers of the queue that have asked for work of late, and those that have not."""
        try:
            reply = await functions.execute("XINFO", "CONSUMERS", functions.keys.tasks, "runners")
        except CommandFailed as error:
            if error.code not in ("NOGROUP", "ERR"):
                raise
            await functions.load()  # somebody flushed the server, or deleted the queue: there are none
            return set(), set()
        polling: set[str] = set()
        silent: set[str] = set()
        for flat in cast("list[list[Any]]", reply):
            consumer = dict(zip(flat[::2], flat[1::2], strict=True))
            is_silent = consumer[b"idle"] * US_PER_MS > self.settings.worker_idle_seconds * US_PER_S
            (silent if is_silent else polling).add(consumer[b"name"].decode())
        return polling, silent - {CLAIM_CONSUMER}

    async def _idle(self, workers: Sequence[str], now_us: int) -> AsyncIterator[str]:
        """Those of the workers of which no shard has seen anything for long."""
        before = now_us / US_PER_S - self.settings.worker_idle_seconds
        for at in range(0, len(workers), READ_LIMIT):
            batch = workers[at : at + READ_LIMIT]
            shards = [await functions.read_workers(batch) for functions in self._functions]
            for worker, *views in zip(batch, *shards, strict=True):
                known = [view for view in views if view]
                if not known or _is_idle(merge_workers(known), before):
                    yield worker

    async def _holders(self) -> AsyncIterator[str]:
        """The workers of open attempts, whether or not their rows show them: a worker may have several."""
        for functions in self._functions:
            for status in ATTEMPT_OPEN:
                rollout_ids = [one async for one in self._members(functions.keys.status(status))]
                for worker in await functions.read_holders(rollout_ids):
                    if worker is not None:
                        yield worker


def _is_idle(worker: Worker, before: float) -> bool:
    return worker.current_attempt_id is None and last_seen(worker) <= before
