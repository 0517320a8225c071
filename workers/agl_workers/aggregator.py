"""The aggregator: adds up what the spans of a shard say, so that sums are there to be read."""

from __future__ import annotations

import asyncio
from typing import Final

from agl_streams.errors import NamespaceError, StoreUnavailable
from agl_streams.function_types import FoldResult
from agl_streams.logger import get_logger
from agl_streams.store import StreamStore
from agl_workers.bell import LogBell
from agl_workers.loops import persist, together

BATCHES_PER_RUN: Final = 50  # 10,000 events: a backlog is worked off in bounded steps, between which a stop is seen

_log = get_logger()


class Aggregator:
    """Folds one shard. Any number of them on one shard share the work: each event is folded once."""

    def __init__(self, store: StreamStore, shard: int) -> None:
        self._store = store
        self._shard = shard

    async def run_once(self) -> FoldResult:
        """Fold until the log's end, or for BATCHES_PER_RUN batches; returns the sum of what they did.

        Raises:
            Gap, Upgrade: the log cannot be folded. What came before the bad event has been.
            StoreUnavailable: the server is away. What was folded stays so.
        """
        events, last_id, more = 0, None, True
        for _ in range(BATCHES_PER_RUN):
            result = await self._store.fold_once(self._shard)
            events, last_id, more = events + result.events, result.last_id or last_id, result.more
            if not more:
                break
        return FoldResult(events, last_id, more)

    async def run(self, stop: asyncio.Event) -> None:
        """Fold whenever there is something to, until ``stop`` is set; then fold what is there and return.

        A server that is away is waited for, without end.

        Raises:
            Gap, Upgrade: the log cannot be folded. A fold that lies would be worse than none.
        """
        bell = LogBell(self._store, self._shard)
        await together(bell.run(stop), self.follow(bell, stop))

    async def follow(self, bell: LogBell, stop: asyncio.Event) -> None:
        """As `run`, for a bell that somebody else keeps running."""
        rung = bell.listen()
        try:
            while await rung.wait():
                rung.clear()
                await self._fold_to_the_end(stop)
                if stop.is_set():
                    return
        except NamespaceError as error:
            _log.error("fold_impossible", shard=self._shard, error=str(error))
            raise
        except StoreUnavailable:
            # The position of the fold is in the server: whoever comes next goes on from there.
            _log.warning("fold_left_to_others", shard=self._shard)

    async def _fold_to_the_end(self, stop: asyncio.Event) -> None:
        while (await persist(self.run_once, "fold_delayed", stop=stop, shard=self._shard)).more:
            pass
