"""A service that sentinels watch: they are asked where its primary is, at first and whenever it may have changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import cast

from agl_streams.errors import ServerRefused
from agl_streams.logger import get_logger
from agl_streams.topology import MOVING_CODES, REFRESH_TIMEOUT_S, Follow, Node, Nodes, Question
from agl_streams.wire import FAULTS, Address, Arg, Place, pack

_log = get_logger()


class SentinelService:
    """The primary of a service.

    Every connection to it makes sure that it is one: a server that was demoted still answers reads, with the past.
    """

    mode = "standalone"
    moving = MOVING_CODES
    fails_over = True

    def __init__(
        self, public: str, sentinels: Sequence[Address], server: Address, service: str, follow: Follow
    ) -> None:
        self.public = public
        self._sentinels = [Node(address) for address in sentinels]
        self._nodes = Nodes(server, primary_only=True)
        self._service = service
        self._follow = follow
        self._primary: Place | None = None
        self._place = Question(self._ask_around)

    async def find(self) -> None:
        """Ask for the primary.

        Raises:
            ServerRefused: no sentinel knows the service, or they are none.
        """
        if fault := await self._place.ask():
            raise fault

    def slots(self) -> list[int]:
        """All slots are alike."""
        return [0]

    def slot(self, args: Sequence[Arg], near: Arg | None) -> int:
        """All slots are alike."""
        return 0

    def node(self, slot: int) -> Node:
        """The primary."""
        assert self._primary is not None, "the primary is found before anything is sent"
        return self._nodes.at(self._primary)

    async def learn(self, fault: Exception, node: Node) -> None:
        """Whatever it was: the sentinels may know another primary by now."""
        await node.drop_idle()
        await self._place.ask()

    async def close(self) -> None:
        """Close all connections."""
        await self._place.finish()
        await self._nodes.close()
        for sentinel in self._sentinels:
            await sentinel.close()

    async def _ask_around(self) -> Exception | None:
        """Ask one sentinel after the other, in an order of chance: none that hangs is always the first."""
        last: Exception | None = None
        question = pack(("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        for sentinel in random.sample(self._sentinels, len(self._sentinels)):
            try:
                async with asyncio.timeout(REFRESH_TIMEOUT_S):
                    (reply,) = await sentinel.pool.exchange(question, 1)
            except FAULTS as fault:
                last = fault
                if "unknown command" in str(fault).lower():
                    last = ServerRefused(f"{sentinel.public} is no sentinel: give the server as redis:// or rediss://")
                continue
            if reply is not None:
                host, port = cast("list[bytes]", reply)
                await self._use(Place(host.decode(), int(port)))
                return None
            last = ServerRefused(f"{sentinel.public} watches no service of the name {self._service!r}")
        return last

    async def _use(self, place: Place) -> None:
        before, self._primary = self._primary, place
        if before not in (None, place):
            _log.info("redis_moved", url=self.public, primaries=[f"{place.host}:{place.port}"])
            await self._nodes.keep({place})
            await self._follow()
