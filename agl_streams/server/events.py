"""The log for many readers: one blocked read per process and shard, one ring of recent events, any number of tails.

A tail costs nothing but its filter and a number: events are rendered once and kept in one ring for all. A tail that the
ring has overtaken has missed something; it is told so, with the cursor from which it can resume.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Final

from agl_streams.connection import RedisConnection
from agl_streams.events import Event, decode
from agl_streams.server.answers import plain
from agl_streams.server.cursor import Cursor
from agl_streams.server.follow import Entries, Follower
from agl_streams.server.past import past_events

RING: Final = 4096
"""Events kept for slow tails: about a MB, and seconds of a busy system."""
RING_BYTES: Final = 16 * 1024 * 1024
"""The same in bytes: an event of many spans with long ids may have 50 KB."""
MERGE_S: Final = 0.01
"""How long events of several shards are collected before they go out in time order: far above a read's delay."""
US_PER_S: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a tail wants; None for all."""

    types: frozenset[str] | None = None
    rollout_ids: frozenset[str] | None = None

    def admits(self, event: Event) -> bool:
        """Whether an event is wanted."""
        if self.types is not None and event.type not in self.types:
            return False
        return self.rollout_ids is None or event.fields.get("rollout") in self.rollout_ids


@dataclass(frozen=True)
class Placed:
    """An event, and the cursor after it."""

    shard: int
    event: Event
    cursor: Cursor

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(map(len, self.event.fields.values()))

    @cached_property
    def rendered(self) -> bytes:
        """The event as one server-sent event. Made once, however many tails send it."""
        event = self.event
        data = {
            "shard": self.shard,
            "id": event.id,
            "type": event.type,
            "n": event.n,
            "time": event.time_us / US_PER_S,
            "fields": event.fields,
        }
        return b"id: %b\ndata: %b\n\n" % (str(self.cursor).encode(), plain(data))


class FellBehind(Exception):
    """A tail read so slowly that the ring has overtaken it."""


class Tail:
    """One reader of live events.

    Attributes:
        cursor: the tail has been given everything up to here.
        woken: set when there is something to read, or the hub closes.
        pending: the number of the first event that it wants and has not read.
    """

    def __init__(self, wanted: Filter, cursor: Cursor) -> None:
        self.wanted = wanted
        self.cursor = cursor
        self.woken = asyncio.Event()
        self.pending: int | None = None

    def offer(self, number: int) -> None:
        """Hear of an event that is wanted."""
        if self.pending is None:
            self.pending = number
            self.woken.set()


class EventHub:
    """The tails of one process. Its readers run while there is a tail.

    Attributes:
        closing: no more events come; tails end.
        tails: how many there are.
        published: how many events have gone into the ring, which is the number of the newest.
    """

    def __init__(self, connection: RedisConnection, streams: Sequence[str]) -> None:
        self.closing = False
        self.tails = 0
        self.published = 0
        self._connection = connection
        self._streams = streams
        self._followers = [
            Follower(connection, stream, partial(self._hear, shard)) for shard, stream in enumerate(streams)
        ]
        self._any_rollout: set[Tail] = set()
        self._by_rollout: defaultdict[str, set[Tail]] = defaultdict(set)
        self._ring: deque[Placed] = deque()
        self._ring_bytes = 0
        self._cursor = Cursor.beginning(len(streams))
        self._collected: list[tuple[int, int, Event]] = []
        self._changing = asyncio.Lock()

    async def join(self, wanted: Filter) -> Tail:
        """A tail of what is written from now on."""
        async with self._changing:
            if self.tails == 0:
                await self._start()
            self.tails += 1
        tail = Tail(wanted, self._cursor)
        for group in self._groups(tail):
            group.add(tail)
        return tail

    async def leave(self, tail: Tail) -> None:
        """End a tail."""
        for group in self._groups(tail):
            group.discard(tail)
        for rollout_id in tail.wanted.rollout_ids or ():
            if not self._by_rollout[rollout_id]:
                del self._by_rollout[rollout_id]
        async with self._changing:
            self.tails -= 1
            if self.tails == 0:
                await self._stop()

    async def close(self) -> None:
        """End all tails and the blocked reads."""
        self.closing = True
        for tail in chain(self._any_rollout, *self._by_rollout.values()):
            tail.woken.set()
        async with self._changing:
            await self._stop()

    def read(self, tail: Tail) -> list[Placed]:
        """What a tail wants and has not read.

        Raises:
            FellBehind: some of it is gone; ``tail.cursor`` is where to resume.
        """
        tail.woken.clear()
        first, oldest = tail.pending, self.published - len(self._ring) + 1
        if first is not None and first < oldest:
            raise FellBehind
        tail.pending, tail.cursor = None, self._cursor
        if first is None:
            return []
        recent = (self._ring[number - oldest] for number in range(first, self.published + 1))
        return [placed for placed in recent if tail.wanted.admits(placed.event)]

    async def catch_up(self, tail: Tail, after: Cursor) -> AsyncGenerator[list[Placed], None]:
        """What a tail wants from a place in the past up to where it is; then it is where the log ends.

        A log that grows by more than the ring holds while it is being read is read on.
        """
        while True:
            cursor, until = after, tail.cursor
            async for page in past_events(self._connection, self._streams, after, until):
                found: list[Placed] = []
                for shard, event in page:
                    cursor = cursor.moved(shard, event.id)
                    if tail.wanted.admits(event):
                        found.append(Placed(shard, event, cursor))
                yield found
            try:
                yield self.read(tail)
            except FellBehind:
                after, tail.cursor, tail.pending = until, self._cursor, None
            else:
                return

    def _groups(self, tail: Tail) -> list[set[Tail]]:
        rollout_ids = tail.wanted.rollout_ids
        return [self._any_rollout] if rollout_ids is None else [self._by_rollout[one] for one in rollout_ids]

    async def _start(self) -> None:
        self._ring.clear()
        self._ring_bytes = 0
        try:
            self._cursor = Cursor(tuple([await follower.start() for follower in self._followers]))
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        for follower in self._followers:
            await follower.stop()
        self._collected.clear()

    def _hear(self, shard: int, entries: Entries) -> None:
        found = [decode(entry_id, flat) for entry_id, flat in entries]
        if len(self._streams) == 1:
            for event in found:
                self._publish(shard, event)
            return
        if found and not self._collected:
            asyncio.get_running_loop().call_later(MERGE_S, self._merge)
        self._collected += [(event.time_us, shard, event) for event in found]

    def _merge(self) -> None:
        collected, self._collected = self._collected, []
        for _, shard, event in sorted(collected, key=lambda item: item[:2]):
            self._publish(shard, event)

    def _publish(self, shard: int, event: Event) -> None:
        self._cursor = self._cursor.moved(shard, event.id)
        placed = Placed(shard, event, self._cursor)
        self._ring.append(placed)
        self._ring_bytes += placed.size
        while len(self._ring) > RING or self._ring_bytes > RING_BYTES:
            self._ring_bytes -= self._ring.popleft().size
        self.published += 1
        for tail in chain(self._any_rollout, self._by_rollout.get(event.fields.get("rollout", ""), ())):
            if tail.wanted.admits(event):
                tail.offer(self.published)
