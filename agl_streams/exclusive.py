"""Connections that serve one exchange at a time: for WAIT, which holds up whatever is behind it on its connection."""

from __future__ import annotations

import asyncio
from typing import Final

from agl_streams import errors
from agl_streams.wire import FAULTS, Address, Reply, Wire, ready

MOST: Final = 32  # exchanges that wait for replicas at the same time; further ones wait for these


class ExclusivePool:
    """A bounded set of connections to one address. None is made before it is needed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Wire] = []
        self._places = asyncio.Semaphore(MOST)
        self._closed = False

    async def exchange(self, packed: bytes, count: int, *, longer_s: float) -> list[Reply]:
        """Send ``count`` packed commands in one piece and read as many replies.

        Args:
            longer_s: how much longer than other commands it may take.

        Raises what redis-py raises, or ``TimeoutError``; of several error replies the first, once all are read.
        """
        async with self._places:
            wire = self._take()
            try:
                async with asyncio.timeout(self._address.command_timeout_s + longer_s):
                    await ready(self._address, wire)
                    await wire.send_packed_command(packed, check_health=False)
                    replies = [await _reply(wire) for _ in range(count)]
            except BaseException:
                # Cancelled, timed out or cut: a reply may still be on its way, and the next command would read it.
                await wire.disconnect(nowait=True)
                raise
            finally:
                if self._closed:
                    await wire.disconnect(nowait=True)
                else:
                    self._idle.append(wire)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [reply for reply in replies if not isinstance(reply, Exception)]

    def _take(self) -> Wire:
        if self._closed:
            raise errors.StoreUnavailable(f"the connection to {self._address.public} has been closed; open another")
        return self._idle.pop() if self._idle else self._address.connection()

    async def drop_idle(self) -> None:
        """Close the idle connections."""
        for wire in self._idle:
            await wire.disconnect(nowait=True)

    async def close(self) -> None:
        """Close every connection, those in use at the end of their exchange."""
        self._closed = True
        while self._idle:
            await self._idle.pop().disconnect()


async def _reply(wire: Wire) -> Reply | Exception:
    """A reply, or the error reply in its place. Raises when there can be no further one."""
    try:
        return await wire.read_response()
    except FAULTS as fault:
        if not wire.is_connected:
            raise
        return fault
