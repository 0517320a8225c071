"""A cluster: a map of slots that is asked of any node, and asked again whenever a reply or its absence says so.

redis-py's cluster client is left out: it asks the server for the keys of every function call, with all arguments, and
does not look for the new primaries when the node that it asks is gone.

ASK is not followed. While a slot moves key by key, a function that is sent after its first key would not find the
others: they are still where they were. The command waits until the slot has moved.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from agl_streams.errors import ServerRefused
from agl_streams.logger import get_logger
from agl_streams.slots import SlotRange, read_slots, slot_of_command, slot_of_key
from agl_streams.topology import MOVING_CODES, REFRESH_TIMEOUT_S, Follow, Node, Nodes, Question
from agl_streams.wire import FAULTS, Address, Arg, Place, moved_to, pack

KEYS_KNOWN: Final = 4096  # slots that are remembered by key: every command of a shard names one of few keys
CLUSTER_DISABLED: Final = "cluster support disabled"  # what a server says that is no node of a cluster

_log = get_logger()
_slot_of_key = lru_cache(KEYS_KNOWN)(slot_of_key)


class Cluster:
    """The primaries of a cluster, by slot."""

    mode = "cluster"
    moving = MOVING_CODES
    fails_over = True

    def __init__(self, public: str, seeds: Sequence[Address], follow: Follow) -> None:
        self.public = public
        self._seeds = [seed.place for seed in seeds]
        self._nodes = Nodes(seeds[0])
        self._follow = follow
        self._ranges: list[SlotRange] = []
        self._moved: dict[int, Place] = {}  # since the map was asked for
        self._named: set[Place] = set()  # by a node that had moved a slot there: it is asked first
        self._map = Question(self._ask_around)

    async def find(self) -> None:
        """Ask for the map. Raises the last fault when no node can tell."""
        if fault := await self._map.ask():
            if CLUSTER_DISABLED in str(fault):
                raise ServerRefused(f"{self.public}: this is no cluster; give the server as redis:// or rediss://")
            raise fault

    def slots(self) -> list[int]:
        """One slot of each primary."""
        return list({each.primary: each.first for each in self._ranges}.values())

    def slot(self, args: Sequence[Arg], near: Arg | None) -> int:
        """The slot of a command; any for one without a key."""
        found = slot_of_command(args) if near is None else _slot_of_key(near)
        return found if found is not None else self._ranges[0].first if self._ranges else 0

    def node(self, slot: int) -> Node:
        """The node that serves a slot. Where none does, any will say so."""
        return self._nodes.at(self._moved.get(slot) or self._primary(slot) or random.choice(self._seeds))

    async def learn(self, fault: Exception, node: Node) -> None:
        """A reply that names another node is believed at once; anything else says that the map may be old."""
        moved = moved_to(fault)
        if moved is None:
            await node.drop_idle()
            await self._map.ask()
            return
        slot, place = moved
        place = Place(place.host or node.address.place.host, place.port)
        self._named = {place}
        await self._map.ask()
        if self._primary(slot) != place:  # it knows more than who was asked
            self._moved[slot] = place
            await self._follow()

    async def close(self) -> None:
        """Close all connections."""
        await self._map.finish()
        await self._nodes.close()

    def _primary(self, slot: int) -> Place | None:
        return next((each.primary for each in self._ranges if each.first <= slot <= each.last), None)

    async def _ask_around(self) -> Exception | None:
        """Ask one node after the other, in an order of chance: no node that is cut off or hangs is always the first."""
        known = {place for each in self._ranges for place in (each.primary, *each.replicas)} | {*self._seeds}
        order = random.sample(sorted(known), len(known))
        last: Exception | None = None
        for place in [*self._named, *order]:
            try:
                async with asyncio.timeout(REFRESH_TIMEOUT_S):
                    (reply,) = await self._nodes.at(place).pool.exchange(pack(("CLUSTER", "SLOTS")), 1)
            except FAULTS as fault:
                last = fault
                continue
            if ranges := read_slots(reply, place):
                await self._use(ranges)
                return None
        return last or ConnectionError("no node serves any slot yet: has the cluster been created?")

    async def _use(self, ranges: list[SlotRange]) -> None:
        before = self._primaries()
        self._ranges, self._moved, self._named = ranges, {}, set()
        if before and before != self._primaries():
            primaries = sorted({f"{place.host}:{place.port}" for _, _, place in self._primaries()})
            _log.info("redis_moved", url=self.public, primaries=primaries)
            await self._nodes.keep({place for _, _, place in self._primaries()})
            await self._follow()

    def _primaries(self) -> list[tuple[int, int, Place]]:
        return sorted((each.first, each.last, each.primary) for each in self._ranges)
