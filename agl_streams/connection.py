"""The one place that makes Redis clients: timeouts, retries, one client per process and event loop.

Where a command goes is the topology's business (``topology.py``); this sends it there, and again where it must.

``RedisConnection`` sends commands and repeats those that met a lost connection or a server that is busy starting. So
every command given to ``execute`` or ``pipeline`` must be safe to repeat: the first try may have been carried out and
only its reply lost. ``execute_once`` is for the others. Replies are RESP2, in bytes.

``BlockingReader`` (from ``reader()``) holds a connection of its own for ``XREAD``/``XREADGROUP ... BLOCK``.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from agl_streams import clock, errors
from agl_streams.cluster import Cluster
from agl_streams.logger import get_logger
from agl_streams.reader import BlockingReader
from agl_streams.redis_url import parse
from agl_streams.sentinel import SentinelService
from agl_streams.server_info import ServerInfo, judge, parse_info, risks
from agl_streams.topology import Follow, Node, SingleServer, Topology
from agl_streams.wire import FAULTS, Address, Arg, Reply, is_transient, moved_to, pack, translate

if TYPE_CHECKING:
    from agl_streams.config import Settings

__all__ = ["Arg", "BlockingReader", "RedisConnection", "Reply", "ServerInfo"]

_log = get_logger()

RETRY_FOR_S: Final = 10.0  # a restarted server that loads an AOF of about 1 GB is survived
FAILOVER_FOR_S: Final = (
    30.0  # a cluster replaces a primary within about 17 s as it comes; less than the memory of requests
)
RETRY_FIRST_S: Final = 0.02  # a restart on an empty data directory takes some 40 ms
RETRY_MOST_S: Final = 1.0
MS_PER_S: Final = 1000


class RedisConnection:
    """A client of one server, a cluster or a service of sentinels, for one process and one event loop.

    Attributes:
        server: which server answers, as it said at ``open``; of a cluster, one of its primaries.
        min_replicas: how many replicas ``execute_replicated`` waits for.
    """

    server: ServerInfo

    def __init__(self, url: str, settings: Settings | None) -> None:
        """Use ``open``, which also checks the server."""
        self._topology = _topology(url, self._follow)
        self.min_replicas = settings.min_replicas if settings else 0
        self._replica_timeout_s = settings.replica_timeout_seconds if settings else 0.0
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._readers: set[BlockingReader] = set()

    @classmethod
    async def open(cls, url: str, *, settings: Settings | None = None) -> RedisConnection:
        """Connect and check that the server can serve us.

        Args:
            url: one of the forms in ``redis_url.py``, with redis-py's options after ``?``.
                ``socket_timeout`` there is how long a command may take, and never cuts a blocked read.
            settings: ``min_replicas`` of each primary is checked; None: no replicas are needed.

        Raises:
            ConfigError: the URL is malformed.
            ServerTooOld: Redis before 7.0, Valkey before 7.2.
            NotReplicated: fewer replicas are connected than ``AGL_MIN_REPLICAS`` asks for.
            AuthenticationFailed, ServerReadOnly, ServerRefused, StoreUnavailable: as they say.
        """
        connection = cls(url, settings)
        try:
            await connection._inspect()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def public_url(self) -> str:
        """The URL without credentials, for messages and logs."""
        return self._topology.public

    async def execute(self, *args: Arg, near: Arg | None = None) -> Reply:
        """Send one command that is safe to repeat; repeated for up to ``RETRY_FOR_S`` while the server is away.

        Where servers fail over it is repeated for up to ``FAILOVER_FOR_S``.

        Not for blocking commands: all callers share a connection, and would wait behind it. See ``reader``.

        Args:
            near: a key of the node that it goes to. None: of the command's own key, which stands where it does in
                most commands; one without a key goes to any node.

        Raises:
            CommandFailed: an error reply; its ``code`` is the first word.
            OutOfMemory, ServerReadOnly, AuthenticationFailed, StoreUnavailable: as they say.
            InvalidRequest: an argument cannot be sent. TooLarge is the caller's to raise.
            WrongLoop: used after a fork, or from another event loop.
        """
        self._check()
        (reply,) = await self._send(self._topology.slot(args, near), pack(args), 1)
        return reply

    async def execute_replicated(self, write: Sequence[Arg], mark: Sequence[Arg], near: Arg) -> Reply:
        """Send a write that is safe to repeat, and give its reply once ``min_replicas`` replicas have it.

        Args:
            mark: a small write that always changes something. WAIT waits for what its own connection has written, and
                a write that is repeated may find itself done.
            near: a key of the node that both go to.

        Raises:
            NotReplicated: too few replicas acknowledged in time. The write is made, and may be repeated.
            Others as ``execute``.
        """
        self._check()
        wait = ("WAIT", self.min_replicas, round(self._replica_timeout_s * MS_PER_S))
        packed = b"".join([pack(command) for command in (write, mark, wait)])
        slot = self._topology.slot(write, near)
        reply, _, acknowledged = await self._send(slot, packed, 3, longer_s=self._replica_timeout_s)
        if not isinstance(acknowledged, int) or acknowledged < self.min_replicas:
            raise errors.NotReplicated(
                f"{acknowledged} replicas of {self._topology.node(slot).public} acknowledged a write within "
                f"AGL_REPLICA_TIMEOUT_SECONDS={self._replica_timeout_s:g}, and AGL_MIN_REPLICAS={self.min_replicas}. "
                "It is made there and may be repeated; look at the replicas, or ask for fewer"
            )
        return reply

    async def execute_once(self, *args: Arg) -> Reply:
        """Send one command and never repeat it. Errors as in ``execute``; after a cut the outcome is unknown."""
        self._check()
        node = self._topology.node(self._topology.slot(args, None))
        try:
            (reply,) = await node.pool.exchange(pack(args), 1)
        except FAULTS as fault:
            raise translate(fault, node.public) from fault
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Arg]]) -> list[Reply]:
        """Send several commands, each safe to repeat, in one piece on one connection. Not a transaction.

        All go to the node of the first, so all keys are of one shard.

        Raises the error of the first command that failed, after all were carried out; otherwise as ``execute``.
        """
        self._check()
        if not commands:
            return []
        slot = self._topology.slot(commands[0], None)
        return await self._send(slot, b"".join([pack(command) for command in commands]), len(commands))

    def reader(self) -> BlockingReader:
        """A reader with a connection of its own, for blocking commands. Closed with this connection, or by itself."""
        self._check()
        reader = BlockingReader(self._topology, self._check, self._readers.discard)
        self._readers.add(reader)
        return reader

    async def close(self) -> None:
        """Close all connections, those of the readers included. Safe to call twice."""
        self._check()
        for reader in tuple(self._readers):
            await reader.close()
        await self._topology.close()

    async def _send(self, slot: int, packed: bytes, count: int, *, longer_s: float = 0.0) -> list[Reply]:
        node = self._topology.node(slot)
        try:
            replies = await _exchange(packed, count, longer_s, node)
        except FAULTS as fault:
            return await self._repeat(fault, node, slot, partial(_exchange, packed, count, longer_s))
        if node.away:
            _note_back(node)
        return replies

    async def _repeat(
        self, fault: Exception, node: Node, slot: int, again: Callable[[Node], Awaitable[list[Reply]]]
    ) -> list[Reply]:
        """Again, with growing, jittered pauses, until it works, fails for good, or it has taken too long."""
        patience = _Patience(FAILOVER_FOR_S if self._topology.fails_over else RETRY_FOR_S)
        while is_transient(fault, self._topology.moving) and patience.is_left():
            if not node.away and not moved_to(fault):  # once for all commands that wait for the server
                node.away = True
                _log.warning("redis_away", url=node.public, fault=str(fault), retried_for_s=patience.for_s)
            await patience.rest()
            await self._topology.learn(fault, node)
            node = self._topology.node(slot)
            try:
                replies = await again(node)
            except FAULTS as next_fault:
                fault = next_fault
            else:
                _note_back(node)
                return replies
        raise translate(fault, node.public) from fault

    async def _find(self) -> None:
        """Learn where the primaries are; a server that starts is waited for."""
        patience = _Patience(RETRY_FOR_S)
        while True:
            try:
                return await self._topology.find()
            except FAULTS as fault:
                if not (is_transient(fault) and patience.is_left()):
                    raise translate(fault, self.public_url) from fault
            await patience.rest()

    async def _follow(self) -> None:
        """What is read at a server that is not the right one any more shall be read at the one that is."""
        for reader in tuple(self._readers):
            await reader.follow()

    def _check(self) -> None:
        if self._pid == os.getpid() and self._loop is asyncio.get_running_loop():
            return
        if self._pid != os.getpid():
            why = f"it was opened in process {self._pid} and is used in its fork {os.getpid()}"
        else:
            why = "it was opened in another event loop than the one running now"
        raise errors.WrongLoop(
            f"this connection to {self._topology.public} cannot be used here: {why}. "
            "Open one in each process and event loop"
        )

    async def _inspect(self) -> None:
        """Find the primaries, and look at each."""
        await self._find()
        for slot in self._topology.slots():
            await self._send(
                slot, pack(("PING",)), 1
            )  # INFO is answered while the server is loading its data, PING is not
            asked = [pack(("INFO", section)) for section in ("server", "replication", "persistence", "memory")]
            sections = await self._send(slot, b"".join(asked), len(asked))
            info = parse_info(b"".join(section for section in sections if isinstance(section, bytes)))
            public = self._topology.node(slot).public
            self.server = judge(info, public, self._topology.mode)
            if self.server.replicas < self.min_replicas:
                raise errors.NotReplicated(
                    f"{public} has {self.server.replicas} replicas connected, and AGL_MIN_REPLICAS={self.min_replicas}"
                )
            for risk in risks(info):
                _log.warning("redis_forgets", url=public, risk=risk)


class _Patience:
    """How long something is tried, and how long to rest in between: longer each time, with jitter."""

    def __init__(self, for_s: float) -> None:
        self.for_s = for_s
        self._deadline_s = clock.monotonic_s() + for_s
        self._pause_s = RETRY_FIRST_S

    def is_left(self) -> bool:
        """Whether there is time for one more rest."""
        return clock.monotonic_s() + self._pause_s <= self._deadline_s

    async def rest(self) -> None:
        """Let time pass."""
        await clock.sleep_s(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(self._pause_s * 2, RETRY_MOST_S)


def _topology(url: str, follow: Follow) -> Topology:
    """What is behind a URL."""
    target = parse(url)
    seeds = [Address(seed) for seed in target.seeds]
    if target.kind == "cluster":
        return Cluster(target.public, seeds, follow)
    if target.kind == "sentinel":
        return SentinelService(target.public, seeds, Address(target.server), target.service, follow)
    return SingleServer(seeds[0])


def _exchange(packed: bytes, count: int, longer_s: float, node: Node) -> Awaitable[list[Reply]]:
    """What may take longer has a connection to itself."""
    if longer_s:
        return node.exclusive.exchange(packed, count, longer_s=longer_s)
    return node.pool.exchange(packed, count)


def _note_back(node: Node) -> None:
    if node.away:
        node.away = False
        _log.info("redis_back", url=node.public)
