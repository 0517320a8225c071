"""Waiting without polling: one blocking reader per process and stream of finished rollouts, shared by all waiters.

A waiter registers before it looks at the state, so that no completion falls
between the two.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from agl_streams import clock
from agl_streams.connection import BlockingReader, RedisConnection
from agl_streams.errors import CommandFailed, StoreUnavailable
from agl_streams.logger import get_logger
from agl_streams.projections import View

BLOCK_MS: Final = 10_000  # only bounds how long a dead connection goes unnoticed; an entry ends the block at once
BATCH: Final = 1000  # entries per read: a burst is taken in few reads of bounded size
RETRY_S: Final = 0.2  # between reads of a server that is away; the connection itself backs off further

_log = get_logger()


async def end_of(connection: RedisConnection, stream: str) -> bytes:
    """The id of a stream's newest entry; ``0-0`` when it has none."""
    newest = cast("list[View]", await connection.execute("XREVRANGE", stream, "+", "-", "COUNT", 1))
    return newest[0][0] if newest else b"0-0"


async def resume_from(connection: RedisConnection, stream: str, after: bytes) -> bytes:
    """Where to read on after a cut: a replica that took over without the last entries, or with another clock, may give
    smaller ids than those that were read."""
    try:
        return min(after, await end_of(connection, stream), key=_order)
    except (StoreUnavailable, CommandFailed):  # the read that follows says so as well
        return after


def _order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number)


class Waiter:
    """Somebody who waits for rollouts.

    Attributes:
        event: set when there is news.
        finished: the rollouts that were seen to finish.
        uncertain: completions may have been missed (the reader was cut off): look at the state.
    """

    def __init__(self, rollout_ids: Iterable[str]) -> None:
        self.rollout_ids = frozenset(rollout_ids)
        self.event = asyncio.Event()
        self.finished: set[str] = set()
        self.uncertain = False

    def news(self) -> set[str]:
        """What finished since the last call."""
        self.event.clear()
        finished, self.finished = self.finished, set()
        return finished


class FinishedTail:
    """Wakes waiters when rollouts finish. Its readers start with the first waiter."""

    def __init__(self, connection: RedisConnection, streams: Sequence[str]) -> None:
        self._connection = connection
        self._streams = streams
        self._waiters: defaultdict[str, set[Waiter]] = defaultdict(set)
        self._tasks: list[asyncio.Task[None]] = []
        self._readers: list[BlockingReader] = []
        self._starting = asyncio.Lock()
        self.closed = False

    async def watch(self, rollout_ids: Iterable[str]) -> Waiter:
        """A waiter that hears of every completion from now on, until `unwatch`."""
        waiter = Waiter(rollout_ids)
        for rollout_id in waiter.rollout_ids:
            self._waiters[rollout_id].add(waiter)
        async with self._starting:
            if not self._tasks:
                await self._start()
        return waiter

    def unwatch(self, waiter: Waiter) -> None:
        """Forget a waiter."""
        for rollout_id in waiter.rollout_ids:
            self._waiters[rollout_id].discard(waiter)
            if not self._waiters[rollout_id]:
                del self._waiters[rollout_id]

    async def close(self) -> None:
        """End the blocked reads at the server and wait for them; waiters wake."""
        self.closed = True
        for reader in self._readers:
            await reader.stop()
        await asyncio.gather(*self._tasks)
        for reader in self._readers:
            await reader.close()
        self._wake_all()

    async def _start(self) -> None:
        for stream in self._streams:
            # The position is taken before any waiter looks at its rollouts.
            after = await end_of(self._connection, stream)
            reader = self._connection.reader()
            self._readers.append(reader)
            self._tasks.append(asyncio.create_task(self._follow(stream, after, reader)))

    async def _follow(self, stream: str, after: bytes, reader: BlockingReader) -> None:
        while not self.closed:
            try:
                reply = await reader.read(
                    "XREAD", "COUNT", BATCH, "BLOCK", BLOCK_MS, "STREAMS", stream, after, block_ms=BLOCK_MS
                )
            except (StoreUnavailable, CommandFailed) as error:
                _log.warning("finished_tail_interrupted", stream=stream, error=str(error))
                await clock.sleep_s(RETRY_S)
                after = await resume_from(self._connection, stream, after)
                # What finished meanwhile may have gone with the server's memory: every waiter looks for itself.
                self._wake_all()
                continue
            for entry_id, fields in cast("Any", reply)[0][1] if reply else ():
                after = entry_id
                if b"rollout" in fields:  # an entry that is not ours concerns nobody
                    self._wake(fields[fields.index(b"rollout") + 1].decode())

    def _wake(self, rollout_id: str) -> None:
        for waiter in self._waiters.get(rollout_id, ()):
            waiter.finished.add(rollout_id)
            waiter.event.set()

    def _wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.uncertain = True
                waiter.event.set()
