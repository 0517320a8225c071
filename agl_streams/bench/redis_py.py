"""redis-py's own client, as a benchmark's baseline: the substrate's published figures were measured through it."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

import redis.asyncio

from agl_streams.wire import Arg


class RedisPy:
    """A client of redis-py, for bare commands and pipelines."""

    def __init__(self, url: str) -> None:
        self._client = cast("Any", redis.asyncio.Redis).from_url(url, protocol=2)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def execute(self, command: Sequence[Arg]) -> None:
        """One command."""
        await self._client.execute_command(*command)

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> None:
        """Several commands in one piece, no transaction."""
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        await pipeline.execute()
