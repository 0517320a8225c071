"""The one place that makes Redis clients: timeouts, retries, one client per process and event loop.

``RedisConnection`` sends commands and repeats those that met a lost connection or a server that is busy starting. So
every command given to ``execute`` or ``pipeline`` must be safe to repeat: the first try may have been carried out and
only its reply lost. ``execute_once`` is for the others. Replies are RESP2, in bytes.

``BlockingReader`` (from ``reader()``) holds a connection of its own for ``XREAD``/``XREADGROUP ... BLOCK``.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import structlog

from agl_streams import clock, errors
from agl_streams.pool import Pool
from agl_streams.reader import BlockingReader
from agl_streams.server_info import ServerInfo, judge, parse_info
from agl_streams.wire import FAULTS, Address, Arg, Reply, is_transient, pack, translate

if TYPE_CHECKING:
    from agl_streams.config import Settings

__all__ = ["Arg", "BlockingReader", "RedisConnection", "Reply", "ServerInfo"]

_log = structlog.get_logger()

RETRY_FOR_S: Final = 10.0  # a restarted server that loads an AOF of about 1 GB is survived
RETRY_FIRST_S: Final = 0.02  # a restart on an empty data directory takes some 40 ms
RETRY_MOST_S: Final = 1.0


class RedisConnection:
    """A client of one server, for one process and one event loop.

    Attributes:
        server: which server answers, as it said at ``open``.
    """

    server: ServerInfo

    def __init__(self, address: Address) -> None:
        """Use ``open``, which also checks the server."""
        self._address = address
        self._pool = Pool(address)
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._readers: set[BlockingReader] = set()
        self._away = False  # whether the server was out of reach at the last look

    @classmethod
    async def open(cls, url: str, *, settings: Settings | None = None) -> RedisConnection:
        """Connect and check that the server can serve us.

        Args:
            url: ``redis://``, ``rediss://`` (TLS) or ``unix://``, with redis-py's options after ``?``.
                ``socket_timeout`` there is how long a command may take, and never cuts a blocked read.
            settings: ``min_replicas`` is checked; None: no replicas are needed.

        Raises:
            ConfigError: the URL is malformed, or names a topology that is not supported yet.
            ServerTooOld: Redis before 7.0, Valkey before 7.2.
            NotReplicated: fewer replicas are connected than ``AGL_MIN_REPLICAS`` asks for.
            AuthenticationFailed, ServerReadOnly, ServerRefused, StoreUnavailable: as they say.
        """
        connection = cls(Address(url))
        try:
            await connection._inspect(settings.min_replicas if settings else 0)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def public_url(self) -> str:
        """The URL without credentials, for messages and logs."""
        return self._address.public

    async def execute(self, *args: Arg) -> Reply:
        """Send one command that is safe to repeat; repeated for up to ``RETRY_FOR_S`` while the server is away.

        Not for blocking commands: all callers share a connection, and would wait behind it. See ``reader``.

        Raises:
            CommandFailed: an error reply; its ``code`` is the first word.
            OutOfMemory, ServerReadOnly, AuthenticationFailed, StoreUnavailable: as they say.
            InvalidRequest: an argument cannot be sent. TooLarge is the caller's to raise.
            WrongLoop: used after a fork, or from another event loop.
        """
        self._check()
        (reply,) = await self._send(pack(args), 1)
        return reply

    async def execute_once(self, *args: Arg) -> Reply:
        """Send one command and never repeat it. Errors as in ``execute``; after a cut the outcome is unknown."""
        self._check()
        packed = pack(args)
        try:
            (reply,) = await self._pool.exchange(packed, 1)
        except FAULTS as fault:
            raise translate(fault, self._address.public) from fault
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Reply]:
        """Send several commands, each safe to repeat, in one piece on one connection. Not a transaction.

        Raises the error of the first command that failed, after all were carried out; otherwise as ``execute``.
        """
        self._check()
        if not commands:
            return []
        return await self._send(b"".join([pack(command) for command in commands]), len(commands))

    def reader(self) -> BlockingReader:
        """A reader with a connection of its own, for blocking commands. Closed with this connection, or by itself."""
        self._check()
        reader = BlockingReader(self._address, self.execute_once, self._check, self._readers.discard)
        self._readers.add(reader)
        return reader

    async def close(self) -> None:
        """Close all connections, those of the readers included. Safe to call twice."""
        self._check()
        for reader in tuple(self._readers):
            await reader.close()
        await self._pool.close()

    async def _send(self, packed: bytes, count: int) -> list[Reply]:
        try:
            replies = await self._pool.exchange(packed, count)
        except FAULTS as fault:
            replies = await self._repeat(fault, packed, count)
        if self._away:
            self._away = False
            _log.info("redis_back", url=self._address.public)
        return replies

    async def _repeat(self, fault: Exception, packed: bytes, count: int) -> list[Reply]:
        """Again, with growing, jittered pauses, until it works, fails for good, or ``RETRY_FOR_S`` have passed."""
        deadline = clock.monotonic_s() + RETRY_FOR_S
        pause_s = RETRY_FIRST_S
        while is_transient(fault):
            await self._pool.drop_idle()
            if clock.monotonic_s() + pause_s > deadline:
                break
            if not self._away:  # once for all commands that wait for the server
                self._away = True
                _log.warning("redis_away", url=self._address.public, fault=str(fault), retried_for_s=RETRY_FOR_S)
            await clock.sleep_s(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, RETRY_MOST_S)
            try:
                return await self._pool.exchange(packed, count)
            except FAULTS as next_fault:
                fault = next_fault
        raise translate(fault, self._address.public) from fault

    def _check(self) -> None:
        if self._pid == os.getpid() and self._loop is asyncio.get_running_loop():
            return
        if self._pid != os.getpid():
            why = f"it was opened in process {self._pid} and is used in its fork {os.getpid()}"
        else:
            why = "it was opened in another event loop than the one running now"
        raise errors.WrongLoop(
            f"this connection to {self._address.public} cannot be used here: {why}. "
            "Open one in each process and event loop"
        )

    async def _inspect(self, min_replicas: int) -> None:
        await self.execute("PING")  # INFO is answered while the server is loading its data, PING is not
        sections = await self.pipeline([("INFO", "server"), ("INFO", "replication")])
        info = parse_info(b"".join(section for section in sections if isinstance(section, bytes)))
        self.server = judge(info, self._address.public)
        if self.server.replicas < min_replicas:
            raise errors.NotReplicated(
                f"{self._address.public} has {self.server.replicas} replicas connected, and "
                f"AGL_MIN_REPLICAS={min_replicas}"
            )
