"""What every part of the store stands on: one connection, the shards' functions, settings, opening and closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from agl_streams import clock
from agl_streams.config import Settings, load_settings
from agl_streams.connection import RedisConnection
from agl_streams.errors import ConfigError
from agl_streams.function_types import ExpireResult, FoldResult
from agl_streams.functions import ShardFunctions
from agl_streams.keys import ShardKeys, escape, shard_of, unescape
from agl_streams.late import LateConnection
from agl_streams.store import requests
from agl_streams.tail import FinishedTail
from agl_streams.values import check_worker_id

StoreT = TypeVar("StoreT", bound="StoreBase")

US_PER_S: Final = 1_000_000
SCAN: Final = 500  # entries of a sorted set or stream per call
BEGIN_WITHIN_MS: Final = 3000  # an entry delivered but not begun for this long goes back: a begin takes milliseconds


class StoreBase:
    """Connection, shards and life cycle. Made by `connect`, closed by `close` or as an async context manager.

    A store belongs to the process and event loop that it was made in. A pickle of it holds the URL (with its password),
    the settings and so the namespace; what comes out of it is a store of the process and loop that use it first.
    """

    def __init__(self, url: str, settings: Settings, connection: RedisConnection) -> None:
        """Use `connect`."""
        self.url = url
        self.settings = settings
        self.connection = connection
        self.shards = settings.shards
        self._functions = [
            ShardFunctions(connection, ShardKeys(settings.namespace, shard), settings.shards)
            for shard in range(settings.shards)
        ]
        self._lease_us = us(settings.lease_seconds)
        self._next_shard = 0
        self._opened_s = clock.monotonic_s()
        self._finished = FinishedTail(connection, [functions.keys.finished for functions in self._functions])

    @classmethod
    async def connect(
        cls, url: str | None = None, *, settings: Settings | None = None, namespace: str | None = None
    ) -> Self:
        """Open a store for this process and event loop, and make or check its namespace.

        Args:
            url: the server; None takes ``settings.redis_url`` (``AGL_REDIS_URL``).
            settings: None reads ``AGL_*`` variables.
            namespace: None takes ``settings.namespace``.

        Raises:
            ConfigError: no URL anywhere, or a bad one.
            WrongShardCount, Upgrade, ForeignKey: the namespace does not fit this process.
            ServerTooOld, ServerReadOnly, AuthenticationFailed, StoreUnavailable: as they say.
        """
        settings = settings or load_settings()
        if namespace is not None:
            settings = load_settings(**{**settings.model_dump(), "namespace": namespace})
        url = url or settings.redis_url
        if url is None:
            raise ConfigError(
                "no server to connect to: give a URL or set AGL_REDIS_URL; the embedded one is started by "
                "agl_streams.engine.Engine.start(data_dir) or any agl-streams command"
            )
        connection = await RedisConnection.open(url, settings=settings)
        try:
            return await cls(url, settings, connection).open()
        except BaseException:
            await connection.close()
            raise

    async def open(self) -> Self:
        """Connect, unless that is done, and make or check the namespace. `connect` has done it.

        A store that came by pickle does the first by itself at its first use; before a `RolloutConsumer` is made of it,
        and where a namespace that does not fit should be told at once, open it.

        Raises:
            As `connect`.
        """
        await asyncio.gather(*(functions.load() for functions in self._functions))
        return self

    async def close(self) -> None:
        """Stop the shared readers and close the connections. Safe to call twice."""
        await self._finished.close()
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> Any:
        return _arrived, (type(self), self.url, self.settings)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of namespace {self.settings.namespace!r} at {self.connection.public_url}>"

    def functions(self, shard: int) -> ShardFunctions:
        """The commands of one shard."""
        return self._functions[shard]

    def functions_of(self, rollout_id: str) -> ShardFunctions:
        """The commands of the shard that a rollout lives in."""
        return self._functions[shard_of(rollout_id, self.shards)]

    async def fold_once(self, shard: int) -> FoldResult:
        """Add up the next sums of one shard. What the aggregator does in its loop.

        Raises:
            Gap, Upgrade: the log cannot be folded.
        """
        return await self._functions[shard].fold()

    async def expire_once(self, shard: int) -> ExpireResult:
        """End what is overdue in one shard. What the watchdog does in its loop."""
        settings = self.settings
        return await self._functions[shard].expire(self._lease_us, BEGIN_WITHIN_MS, settings.max_deliveries)

    async def settle(self) -> None:
        """Fold every shard up to its present end, so that sums include all that was written before this call."""
        for shard in range(self.shards):
            while (await self.fold_once(shard)).more:
                pass

    async def _latest_resources_id(self) -> str | None:
        """The id of the resources updated last; they live in shard 0."""
        newest = await self.connection.execute("ZRANGE", self._functions[0].keys.resources, 0, 0, "REV")
        return unescape(cast("list[bytes]", newest)[0].decode()) if newest else None

    async def _members(self, key: str) -> AsyncIterator[str]:
        """The members of a sorted set in order, in bounded steps."""
        start = 0
        while True:
            members = cast("list[bytes]", await self.connection.execute("ZRANGE", key, start, start + SCAN - 1))
            for member in members:
                yield member.decode()
            if len(members) < SCAN:
                return
            start += SCAN

    async def _entries(self, stream: str) -> AsyncIterator[tuple[str, dict[str, str]]]:
        """The entries of a stream in order, each with its id, in bounded steps."""
        after = "-"
        while True:
            entries = cast("Any", await self.connection.execute("XRANGE", stream, after, "+", "COUNT", SCAN))
            for entry_id, flat in entries:
                yield entry_id.decode(), {flat[at].decode(): flat[at + 1].decode() for at in range(0, len(flat), 2)}
            if len(entries) < SCAN:
                return
            after = f"({entries[-1][0].decode()}"

    def _worker(self, worker_id: str | None) -> str:
        """A worker id as functions take it: escaped, '' for none."""
        return "" if worker_id is None else escape(check_worker_id(worker_id))

    def _lease(self, lease_seconds: float | None) -> str:
        """A lease as functions take it: microseconds, '' for none."""
        return requests.limit_us(lease_seconds, "lease_seconds")


def _arrived(kind: type[StoreT], url: str, settings: Settings) -> StoreT:
    """A store that came by pickle."""
    return kind(url, settings, LateConnection(url, settings))


def us(seconds: float) -> str:
    """Seconds as whole microseconds, in text."""
    return str(round(seconds * US_PER_S))
