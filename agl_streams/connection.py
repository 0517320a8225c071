"""The one place that makes Redis clients: timeouts, retries, per process and per event loop.

``RedisConnection`` sends commands and retries those that met a lost connection or a server that is busy starting.
So every command given to ``execute`` or ``pipeline`` must be safe to repeat: the first try may have been carried out
and only its reply lost. ``execute_once`` is for the others. Replies are RESP2, in bytes.

``BlockingReader`` (from ``reader()``) holds a connection of its own for ``XREAD``/``XREADGROUP ... BLOCK``.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from agl_streams import clock, errors
from agl_streams.reader import BlockingReader
from agl_streams.wire import FAULTS, Address, Arg, Pool, Reply, is_transient, pack, translate

if TYPE_CHECKING:
    from agl_streams.config import Settings

__all__ = ["Arg", "BlockingReader", "RedisConnection", "Reply", "ServerInfo"]

_T = TypeVar("_T")
_log = structlog.get_logger()

RETRY_FOR_S: Final = 10.0  # a restarted server that loads an AOF of a few GB is survived
RETRY_FIRST_S: Final = 0.02  # a restart on a unix socket takes some 20 ms
RETRY_MOST_S: Final = 1.0
OLDEST_REDIS: Final = (7, 0)  # Functions; XAUTOCLAIM that names deleted entries
OLDEST_VALKEY: Final = (7, 2)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Which server answers.

    Attributes:
        name: ``redis`` or ``valkey``.
        version: numbers of its own version, e.g. ``(9, 1, 2)``.
    """

    name: str
    version: tuple[int, ...]


class RedisConnection:
    """A client of one server, for one process and one event loop."""

    server: ServerInfo

    def __init__(self, address: Address) -> None:
        """Use ``open``, which also checks the server."""
        self._address = address
        self._pool = Pool(address)
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._readers: set[BlockingReader] = set()

    @classmethod
    async def open(cls, url: str, *, settings: Settings | None = None) -> RedisConnection:
        """Connect and check that the server can serve us.

        Raises:
            ConfigError: the URL is malformed, or names a topology that is not supported yet.
            ServerTooOld: Redis before 7.0, Valkey before 7.2.
            AuthenticationFailed, ServerReadOnly, StoreUnavailable: as they say.
        """
        connection = cls(Address(url))
        try:
            await connection._inspect()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def public_url(self) -> str:
        """The URL without credentials, for messages and logs."""
        return self._address.public

    async def execute(self, *args: Arg) -> Reply:
        """Send one command that is safe to repeat; retried for up to ``RETRY_FOR_S`` while the server is away.

        Raises:
            CommandFailed: an error reply; its ``code`` is the first word.
            OutOfMemory, ServerReadOnly, AuthenticationFailed, StoreUnavailable: as they say.
            WrongLoop: used after a fork, or from another event loop.
        """
        if self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            raise self._wrong_loop()
        packed = pack(args)
        try:
            return await self._pool.exchange(packed)
        except FAULTS as fault:
            return await self._retry(fault, lambda: self._pool.exchange(packed))

    async def execute_once(self, *args: Arg) -> Reply:
        """Send one command and never repeat it. Errors as in ``execute``; after a cut the outcome is unknown."""
        if self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            raise self._wrong_loop()
        try:
            return await self._pool.exchange(pack(args))
        except FAULTS as fault:
            raise translate(fault, self._address.public) from fault

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Reply]:
        """Send several commands, each safe to repeat, in one piece. Not a transaction.

        Raises the error of the first command that failed, after all were carried out; otherwise as ``execute``.
        """
        if self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            raise self._wrong_loop()
        packed = b"".join([pack(command) for command in commands])
        try:
            return await self._replies(packed, len(commands))
        except FAULTS as fault:
            return await self._retry(fault, lambda: self._replies(packed, len(commands)))

    async def _replies(self, packed: bytes, count: int) -> list[Reply]:
        replies: list[Reply] = []
        for reply in await self._pool.exchange_many(packed, count):
            if isinstance(reply, Exception):
                raise reply
            replies.append(reply)
        return replies

    def reader(self) -> BlockingReader:
        """A reader with a connection of its own, for blocking commands. Closed with this connection, or by itself."""
        if self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            raise self._wrong_loop()
        reader = BlockingReader(self._address, self.execute_once, self._readers.discard)
        self._readers.add(reader)
        return reader

    async def close(self) -> None:
        """Close all connections, those of the readers included. Safe to call twice."""
        for reader in tuple(self._readers):
            await reader.close()
        await self._pool.close()

    async def _retry(self, fault: Exception, again: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat with growing, jittered pauses until it works, fails for good, or ``RETRY_FOR_S`` have passed."""
        deadline = clock.monotonic_s() + RETRY_FOR_S
        pause_s = RETRY_FIRST_S
        while is_transient(fault):
            await self._pool.drop_idle()
            if clock.monotonic_s() + pause_s > deadline:
                break
            _log.debug("redis_retry", url=self._address.public, error=str(fault), pause_s=pause_s)
            await clock.sleep_s(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, RETRY_MOST_S)
            try:
                return await again()
            except FAULTS as next_fault:
                fault = next_fault
        raise translate(fault, self._address.public) from fault

    def _wrong_loop(self) -> errors.WrongLoop:
        if self._pid != os.getpid():
            why = f"it was opened in process {self._pid} and is used in its fork {os.getpid()}"
        else:
            why = "it was opened in another event loop than the one running now"
        return errors.WrongLoop(
            f"this connection to {self._address.public} cannot be used here: {why}. "
            "Open one in each process and loop with RedisConnection.open (or StreamStore.connect)"
        )

    async def _inspect(self) -> None:
        await self.execute("PING")  # INFO is answered while the server is loading, PING is not
        info = _parse_info(await self.execute("INFO", "server"))
        info |= _parse_info(await self.execute("INFO", "replication"))
        self.server = _server_of(info, self._address.public)
        oldest = OLDEST_VALKEY if self.server.name == "valkey" else OLDEST_REDIS
        if self.server.version < oldest:
            raise errors.ServerTooOld(
                f"{self._address.public} is {self.server.name} {_dotted(self.server.version)}; needed is Redis "
                f"{_dotted(OLDEST_REDIS)} or Valkey {_dotted(OLDEST_VALKEY)}, or newer: they have Functions"
            )
        if info.get("role") != "master":
            raise errors.ServerReadOnly(
                f"{self._address.public} is a replica (role {info.get('role')!r}) of "
                f"{info.get('master_host')}:{info.get('master_port')}; point AGL_REDIS_URL at the primary"
            )


def _parse_info(reply: Reply) -> dict[str, str]:
    text = reply.decode() if isinstance(reply, bytes) else ""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _server_of(info: dict[str, str], public: str) -> ServerInfo:
    """Valkey reports the Redis version that it is compatible with, and its own beside it."""
    name = "valkey" if "valkey_version" in info else "redis"
    version = info.get(f"{name}_version", "")
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    if not numbers:
        raise errors.ServerRefused(f"{public} does not say which version it is (INFO server: {version!r})")
    return ServerInfo(name, numbers)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
