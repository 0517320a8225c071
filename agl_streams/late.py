"""The connection of a store that came by pickle: it opens at its first use, for the process and event loop of that use.

Sockets cannot travel, and where something is unpickled no event loop need be running. So what travels is the URL and
the settings, and the rest waits until a coroutine asks for something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agl_streams.connection import Arg, BlockingReader, RedisConnection, Reply
from agl_streams.errors import WrongLoop
from agl_streams.redis_url import parse

if TYPE_CHECKING:
    from agl_streams.config import Settings


class LateConnection(RedisConnection):
    """A `RedisConnection` that is not open yet. Errors of its first use are those of ``RedisConnection.open`` too."""

    def __init__(self, url: str, settings: Settings) -> None:
        """Nothing is connected."""
        self._url = url
        self._settings = settings
        self.min_replicas = settings.min_replicas
        self._opened: RedisConnection | None = None
        self._opening = asyncio.Lock()

    @property
    def public_url(self) -> str:
        """The URL without credentials, for messages and logs."""
        return parse(self._url).public

    async def ready(self) -> RedisConnection:
        """The connection, opened at the first call."""
        if self._opened is None:
            async with self._opening:
                if self._opened is None:
                    self._opened = await RedisConnection.open(self._url, settings=self._settings)
                    self.server = self._opened.server
        return self._opened

    async def execute(self, *args: Arg, near: Arg | None = None) -> Reply:
        """See `RedisConnection.execute`."""
        return await (await self.ready()).execute(*args, near=near)

    async def execute_replicated(self, write: Sequence[Arg], mark: Sequence[Arg], near: Arg) -> Reply:
        """See `RedisConnection.execute_replicated`."""
        return await (await self.ready()).execute_replicated(write, mark, near)

    async def execute_once(self, *args: Arg) -> Reply:
        """See `RedisConnection.execute_once`."""
        return await (await self.ready()).execute_once(*args)

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Reply]:
        """See `RedisConnection.pipeline`."""
        return await (await self.ready()).pipeline(commands)

    def reader(self) -> BlockingReader:
        """See `RedisConnection.reader`.

        Raises:
            WrongLoop: nothing has been asked for yet, so it is not known which loop the reader would belong to.
        """
        if self._opened is None:
            raise WrongLoop(
                f"the store at {self.public_url} came by pickle and has not been used here: "
                "await store.open() before a consumer is made of it"
            )
        return self._opened.reader()

    async def close(self) -> None:
        """Close what was opened. Safe to call twice, and before the first use."""
        if self._opened is not None:
            await self._opened.close()
