"""The log from one place to another, all shards in time order, in pages of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, cast

from agl_streams.connection import RedisConnection
from agl_streams.events import Event, decode
from agl_streams.server.cursor import Cursor

PAGE: Final = 100
"""Entries per read: usually 25 KB, at worst, with many spans of long ids in each, 5 MB."""


async def past_events(
    connection: RedisConnection, streams: Sequence[str], after: Cursor, until: Cursor
) -> AsyncGenerator[list[tuple[int, Event]], None]:
    """Events with their shards, from behind one cursor up to another. What is written meanwhile is not among them."""
    shards = [_Shard(connection, *ends) for ends in zip(streams, after.ids, until.ids, strict=True)]
    page: list[tuple[int, Event]] = []
    while True:
        heads = [(head.time_us, number) for number, shard in enumerate(shards) if (head := await shard.head())]
        if len(page) == PAGE or (page and not heads):
            yield page
            page = []
        if not heads:
            return
        number = min(heads)[1]
        page.append((number, shards[number].take()))


class _Shard:
    """The events of one shard that have been read and not taken."""

    def __init__(self, connection: RedisConnection, stream: str, after: bytes, until: bytes) -> None:
        self._connection = connection
        self._stream = stream
        self._after = after
        self._until = until
        self._read: deque[Event] = deque()
        self._more = True

    async def head(self) -> Event | None:
        """The next event, or None at the end."""
        if not self._read and self._more:
            reply = cast(
                "Any",
                await self._connection.execute("XRANGE", self._stream, b"(" + self._after, self._until, "COUNT", PAGE),
            )
            self._read.extend(decode(entry_id, flat) for entry_id, flat in reply)
            self._more = len(reply) == PAGE
            if reply:
                self._after = reply[-1][0]
        return self._read[0] if self._read else None

    def take(self) -> Event:
        """The next event, which `head` has shown."""
        return self._read.popleft()
