"""Which servers there are and which of them a command goes to: what ``RedisConnection`` asks before it sends.

One server (here), a cluster (``cluster.py``), or a service that sentinels watch (``sentinel.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from agl_streams.exclusive import ExclusivePool
from agl_streams.pool import Pool
from agl_streams.wire import Address, Arg, Place

REFRESH_TIMEOUT_S: Final = 1.0  # of one node that is asked where the primaries are: others can tell as well
MOVING_CODES: Final = frozenset({"MOVED", "ASK", "READONLY", "UNBLOCKED"})
"""Error replies after which another server is the right one, or will be in a moment."""

Follow = Callable[[], Awaitable[None]]
"""Called when another server has become the right one: what waits at the one before shall look again."""


class Node:
    """One server and the connections to it, which are made when they are needed.

    Attributes:
        away: whether it was out of reach at the last look.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.pool = Pool(address)
        self.exclusive = ExclusivePool(address)
        self.away = False

    @property
    def public(self) -> str:
        """Its URL without credentials."""
        return self.address.public

    async def drop_idle(self) -> None:
        """Close connections that nobody uses: after one was cut, the others are most likely dead as well."""
        await self.pool.drop_idle()
        await self.exclusive.drop_idle()

    async def close(self) -> None:
        """Close all connections, those in use at the end of their exchange."""
        await self.pool.close()
        await self.exclusive.close()


class Topology(Protocol):
    """Where commands go. A *slot* tells shards apart whose keys may be on different servers.

    Attributes:
        public: the URL without credentials, for messages and logs.
        mode: what the servers must say of themselves: ``standalone`` or ``cluster``.
        moving: codes of error replies that are repeated because another server may be right in a moment.
        fails_over: whether a server that is gone is replaced by another.
    """

    public: str
    mode: str
    moving: frozenset[str]
    fails_over: bool

    async def find(self) -> None:
        """Learn where the primaries are. Raises what an exchange raises."""
        ...

    def slots(self) -> list[int]:
        """One slot of each primary."""
        ...

    def slot(self, args: Sequence[Arg], near: Arg | None) -> int:
        """The slot of a command: of the key ``near`` if one is given, otherwise of its own first key."""
        ...

    def node(self, slot: int) -> Node:
        """The node that serves a slot, as far as is known."""
        ...

    async def learn(self, fault: Exception, node: Node) -> None:
        """Draw conclusions from a fault of a node that may pass. Afterwards ``node()`` may give another."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class SingleServer:
    """One server, always the same."""

    mode = "standalone"
    moving: frozenset[str] = frozenset()
    fails_over = False

    def __init__(self, address: Address) -> None:
        self.public = address.public
        self._node = Node(address)

    async def find(self) -> None:
        """There is nothing to find."""

    def slots(self) -> list[int]:
        """All slots are alike."""
        return [0]

    def slot(self, args: Sequence[Arg], near: Arg | None) -> int:
        """All slots are alike."""
        return 0

    def node(self, slot: int) -> Node:
        """The server."""
        return self._node

    async def learn(self, fault: Exception, node: Node) -> None:
        """Connections that nobody uses are closed."""
        await node.drop_idle()

    async def close(self) -> None:
        """Close all connections."""
        await self._node.close()


class Nodes:
    """The nodes that were ever heard of, by their place. One without connections costs next to nothing."""

    def __init__(self, template: Address, *, primary_only: bool = False) -> None:
        self._template = template
        self._primary_only = primary_only
        self._nodes: dict[Place, Node] = {}

    def at(self, place: Place) -> Node:
        """The node at a place."""
        node = self._nodes.get(place)
        if node is None:
            address = self._template.at(place, primary_only=self._primary_only)
            node = self._nodes[place] = Node(address)
        return node

    async def keep(self, places: set[Place]) -> None:
        """Close the idle connections of all others."""
        for place, node in self._nodes.items():
            if place not in places:
                await node.drop_idle()

    async def close(self) -> None:
        """Close all connections."""
        for node in self._nodes.values():
            await node.close()


class Question:
    """Something that is asked once for all who want to know it meanwhile."""

    def __init__(self, ask: Callable[[], Awaitable[Exception | None]]) -> None:
        """``ask`` returns why there was no answer, or None."""
        self._ask = ask
        self._asking: asyncio.Task[Exception | None] | None = None

    async def ask(self) -> Exception | None:
        """Ask, or wait for the answer that is under way; why there was none, or None."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._run())
        # One caller that is cancelled shall not take the answer from the others.
        return await asyncio.shield(self._asking)

    async def finish(self) -> None:
        """Wait for an answer that is under way."""
        if self._asking is not None:
            await self._asking

    async def _run(self) -> Exception | None:
        try:
            return await self._ask()
        finally:
            self._asking = None
