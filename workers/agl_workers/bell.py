"""Rings when the log of a shard has grown: one blocked read for everybody in this process who follows the shard."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, cast

from agl_streams.connection import BlockingReader
from agl_streams.errors import CommandFailed, StoreUnavailable
from agl_streams.logger import get_logger
from agl_streams.store import StreamStore
from agl_workers.loops import persist, set_within

BLOCK_MS: Final = 10_000  # only bounds how long a dead connection goes unnoticed; an event ends the block at once
BURST_S: Final = 0.02
"""How long the events of a burst are let come before the bell rings once for all of them. Nothing but sums and
deadlines waits for it, and with 5 ms the bell and its listeners took a tenth of the time of a busy processor."""

_log = get_logger()


class LogBell:
    """The bell of one shard.

    It reads no events: what they say is read inside the server, by the functions that its listeners call. So it costs
    one entry per burst, however many there are.
    """

    def __init__(self, store: StreamStore, shard: int) -> None:
        self._store = store
        self._functions = store.functions(shard)
        self._log_key = self._functions.keys.log
        self._listeners: list[asyncio.Event] = []

    def listen(self) -> asyncio.Event:
        """An event that is set now and on each ring. The listener clears it *before* it looks at the shard."""
        rung = asyncio.Event()
        rung.set()
        self._listeners.append(rung)
        return rung

    async def run(self, stop: asyncio.Event) -> None:
        """Ring whenever events have been written, and once more when ``stop`` is set; then return.

        A server that is away is waited for.
        """
        reader = self._store.connection.reader()
        stopping = asyncio.create_task(_stop_reading(reader, stop))
        try:
            while not stop.is_set():
                await persist(partial(self._turn, reader, stop), "log_bell_interrupted", stop=stop, log=self._log_key)
        except StoreUnavailable:
            _log.debug("log_bell_stopped_while_store_away", log=self._log_key)
        finally:
            stopping.cancel()
            await reader.close()
            self._ring()

    async def _turn(self, reader: BlockingReader, stop: asyncio.Event) -> None:
        """Ring for what is there, then block until there is more."""
        # The position comes first: what a listener does not see after this ring ends the read below.
        newest = cast("Any", await self._functions.execute("XREVRANGE", self._log_key, "+", "-", "COUNT", 1))
        after = newest[0][0] if newest else b"0-0"
        self._ring()
        if stop.is_set():
            return
        try:
            await reader.read(
                "XREAD", "COUNT", 1, "BLOCK", BLOCK_MS, "STREAMS", self._log_key, after, block_ms=BLOCK_MS
            )
        except CommandFailed as error:
            if error.code != "UNBLOCKED":  # a failover: the server sends its readers away
                raise
        await set_within(stop, BURST_S)

    def _ring(self) -> None:
        for rung in self._listeners:
            rung.set()


async def _stop_reading(reader: BlockingReader, stop: asyncio.Event) -> None:
    await stop.wait()
    await reader.stop()
