"""Following a stream: one blocked read after another, whatever happens to the connection in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from agl_streams import clock
from agl_streams.connection import BlockingReader, RedisConnection
from agl_streams.errors import CommandFailed, StoreUnavailable
from agl_streams.logger import get_logger
from agl_streams.tail import end_of, resume_from

BLOCK_MS: Final = 10_000  # only bounds how long a dead connection goes unnoticed; an entry ends the block at once
BATCH: Final = 500  # entries per read: a burst is taken in few reads of bounded size
RETRY_S: Final = 0.2  # between reads of a server that is away; the reader itself backs off further

Entries: TypeAlias = list[tuple[bytes, list[Any]]]
"""Entry ids, each with its fields and values in turn."""

_log = get_logger()


class Follower:
    """Hands on what is added to one stream, in order and without a gap, from `start` to `stop`."""

    def __init__(self, connection: RedisConnection, stream: str, hear: Callable[[Entries], None]) -> None:
        """
        Args:
            hear: called with what was added; with nothing after a cut, when a server that lost its memory may have
                lost entries too.
        """
        self._connection = connection
        self._stream = stream
        self._hear = hear
        self._reader: BlockingReader | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> bytes:
        """Follow from the stream's present end, whose id is returned."""
        after = await self.end()
        self._stopped = False
        self._reader = self._connection.reader()
        self._task = asyncio.create_task(self._follow(self._reader, after))
        return after

    async def end(self) -> bytes:
        """The id of the stream's newest entry; ``0-0`` when it has none."""
        return await end_of(self._connection, self._stream)

    async def stop(self) -> None:
        """End the blocked read at the server, and the following. Safe when it never started."""
        self._stopped = True
        if self._reader is not None and self._task is not None:
            await self._reader.stop()
            await self._task
            await self._reader.close()
        self._reader = self._task = None

    async def _follow(self, reader: BlockingReader, after: bytes) -> None:
        while not self._stopped:
            try:
                reply: Any = await reader.read(
                    "XREAD", "COUNT", BATCH, "BLOCK", BLOCK_MS, "STREAMS", self._stream, after, block_ms=BLOCK_MS
                )
            except (StoreUnavailable, CommandFailed) as error:
                _log.warning("follower_interrupted", stream=self._stream, error=str(error))
                await clock.sleep_s(RETRY_S)
                after = await resume_from(self._connection, self._stream, after)
                self._hear([])
                continue
            if reply:
                entries: Entries = reply[0][1]
                after = entries[-1][0]
                self._hear(entries)
