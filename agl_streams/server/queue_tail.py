"""Waiting for work over HTTP: a dequeue that finds the queue empty sleeps until something is put on it.

One blocked read per process and shard wakes as many sleepers as entries came, in the order in which they began to
sleep. Taking is left to the claim that each of them repeats; so a wake-up that comes to nothing costs one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from agl_streams import clock
from agl_streams.connection import RedisConnection
from agl_streams.server.follow import Entries, Follower

T = TypeVar("T")


class QueueTail:
    """Wakes those who wait for work. Its readers start with the first of them."""

    def __init__(self, connection: RedisConnection, streams: Sequence[str]) -> None:
        self._followers = [Follower(connection, stream, self._hear) for stream in streams]
        self._sleepers: dict[asyncio.Event, None] = {}  # a dict keeps the order in which they came
        self._starting = asyncio.Lock()
        self._started = False

    async def dequeue(self, claim: Callable[[], Awaitable[list[T]]], wait_s: float) -> list[T]:
        """What ``claim`` takes, now or as soon as there is something; nothing when ``wait_s`` seconds have passed."""
        found = await claim()
        if found or not wait_s > 0:
            return found
        deadline = clock.monotonic_s() + wait_s
        await self._start()
        rung = asyncio.Event()
        self._sleepers[rung] = None
        cut_off = True
        try:
            while True:
                # First look, then sleep: what was queued before this sleeper stood in the list has rung for nobody.
                rung.clear()
                found = await claim()
                if found or not await _rung(rung, deadline):
                    cut_off = False
                    return found
        finally:
            del self._sleepers[rung]
            if cut_off or rung.is_set():  # it may have been woken for something that it has not looked for
                self._wake(1)

    async def close(self) -> None:
        """End the blocked reads at the server."""
        for follower in self._followers:
            await follower.stop()

    async def _start(self) -> None:
        async with self._starting:
            if not self._started:
                for follower in self._followers:
                    await follower.start()
                self._started = True

    def _hear(self, entries: Entries) -> None:
        self._wake(len(entries) or len(self._sleepers))

    def _wake(self, count: int) -> None:
        for rung in self._sleepers:
            if count == 0:
                return
            if not rung.is_set():
                rung.set()
                count -= 1


async def _rung(rung: asyncio.Event, deadline: float) -> bool:
    try:
        async with asyncio.timeout(deadline - clock.monotonic_s()):
            return await rung.wait()
    except TimeoutError:
        return False
