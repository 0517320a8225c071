"""A blocked read that is never cancelled.

Cancelling a blocked ``XREADGROUP`` loses entries: the server may have handed them over already, and the reply is then
thrown away with the connection. Of 200 cancels that raced an ``XADD``, 199 took the entry with them. So the command
runs in a task of its own. Who wants to stop asks the *server* to end it (``CLIENT UNBLOCK``, from another connection),
and the answer, empty or not, is always taken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from agl_streams import errors
from agl_streams.logger import get_logger
from agl_streams.topology import Topology
from agl_streams.wire import FAULTS, Arg, Reply, Wire, is_transient, pack, ready, translate

_log = get_logger()

READ_GRACE_S: Final = 10.0  # how much later than its BLOCK time an answer may come: a stalled server, a slow link
UNBLOCK_FIRST_S: Final = 0.002  # the command may still be on its way to the server; then it is asked again
UNBLOCK_MOST_S: Final = 0.1
RECONNECT_FIRST_S: Final = 0.02
RECONNECT_MOST_S: Final = 2.0  # no storm of reconnects on a server that is down


class BlockingReader:
    """One connection for one blocking read at a time. Made by ``RedisConnection.reader``.

    It goes to the server that serves what is read. When another does so, the pending read ends with an error and the
    next one goes there.
    """

    def __init__(self, topology: Topology, check: Callable[[], None], forget: Callable[[BlockingReader], None]) -> None:
        """``check`` raises when the connection may not be used here; ``forget`` is told of the close."""
        self._topology = topology
        self._check = check
        self._forget = forget
        self._slot = topology.slots()[0]
        self._node = topology.node(self._slot)
        self._wire: Wire = self._node.address.connection()
        self._client_id: Reply = None
        self._task: asyncio.Task[Reply] | None = None
        self._waiting = False
        self._stop = asyncio.Event()
        self._stopper: asyncio.Task[None] | None = None
        self._cuts = 0

    async def read(self, *args: Arg, block_ms: int) -> Reply:
        """Run a blocking command to its end.

        If the awaiting task is cancelled, the read is stopped at the server and what it brought is kept: the next
        ``read`` returns it first, whatever its own arguments are.

        Args:
            args: the command with its ``BLOCK`` argument.
            block_ms: the same BLOCK time in milliseconds; 0 is for ever, and then nothing but TCP keepalive
                notices a dead server.

        Returns:
            The reply, or None when the time ran out or the read was stopped.

        Raises:
            StoreUnavailable: the connection was lost. The next call connects again, after a growing pause.
            CommandFailed: an error reply, e.g. ``NOGROUP``.
        """
        self._check()
        if self._waiting:
            raise errors.InvalidRequest("a BlockingReader serves one read() at a time; make another with reader()")
        packed = pack(args)
        self._waiting = True
        try:
            kept = await self._finish()
            if kept is not None:
                return kept
            self._stop.clear()
            self._slot = self._topology.slot(args, None)
            self._task = asyncio.create_task(self._run(packed, block_ms))
            return await self._finish()
        finally:
            self._waiting = False

    async def take(self) -> Reply:
        """What the last read brought after its awaiting task was cancelled, or None. Stops it if it is still pending.

        Raises what that read raised.
        """
        await self.stop()
        return None if self._waiting else await self._finish()

    async def stop(self) -> None:
        """End the read that is pending now; it returns what it has. A later ``read`` blocks again."""
        self._check()
        task = self._task
        while task is not None and not task.done():
            await asyncio.shield(self._stopping(task))

    async def follow(self) -> None:
        """Cut a read that is pending at a server which has been replaced: hanging, it would not end it by itself."""
        if self._task is not None and not self._task.done() and self._replaced():
            await self._wire.disconnect(nowait=True)

    async def close(self) -> None:
        """Stop, and close the connection. Entries kept from a cancelled read are dropped: ``take`` them before."""
        self._forget(self)
        try:
            if await self.take() is not None:
                _log.warning("redis_read_dropped", url=self._node.public)
        except errors.AglError as error:
            _log.debug("redis_read_failed", url=self._node.public, error=str(error))
        await self._wire.disconnect()

    async def _finish(self) -> Reply:
        """Wait for the last command, if any, and hand out its result once."""
        task = self._task
        if task is None:
            return None
        try:
            await asyncio.wait({task})
            if self._stopper is not None:
                await asyncio.shield(self._stopper)  # its UNBLOCK must not reach the read after this one
        except asyncio.CancelledError:
            if not task.done():
                self._stopping(task)
            raise
        self._task = None
        return task.result()

    def _stopping(self, task: asyncio.Task[Reply]) -> asyncio.Task[None]:
        """The task that stops a read; only one at a time."""
        if self._stopper is None:
            self._stopper = asyncio.create_task(self._unblock(task))
            self._stopper.add_done_callback(self._stopped)
        return self._stopper

    def _stopped(self, stopper: asyncio.Task[None]) -> None:
        self._stopper = None

    async def _run(self, packed: bytes, block_ms: int) -> Reply:
        try:
            if self._cuts and not self._replaced() and await self._stopped_within(self._reconnect_pause_s()):
                return None
            await self._connect()
            if self._stop.is_set():
                return None
            await self._wire.send_packed_command(packed, check_health=False)
            async with asyncio.timeout(block_ms / 1000 + READ_GRACE_S if block_ms else None):
                reply = await self._wire.read_response()
        except FAULTS as fault:
            if not self._wire.is_connected:
                self._cuts += 1
                self._client_id = None
            if is_transient(fault, self._topology.moving):
                await self._topology.learn(fault, self._node)
            if self._stop.is_set() and not self._wire.is_connected:
                return None
            raise translate(fault, self._node.public) from fault
        self._cuts = 0
        return reply

    async def _connect(self) -> None:
        if self._replaced():
            await self._wire.disconnect(nowait=True)
            self._node = self._topology.node(self._slot)
            self._wire = self._node.address.connection()
        if await ready(self._node.address, self._wire):
            await self._wire.send_packed_command(pack(("CLIENT", "ID")), check_health=False)
            self._client_id = await self._wire.read_response()

    def _replaced(self) -> bool:
        return self._topology.node(self._slot) is not self._node

    def _reconnect_pause_s(self) -> float:
        return min(RECONNECT_FIRST_S * 2**self._cuts, RECONNECT_MOST_S) * random.uniform(0.5, 1.0)

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stop.wait()
        except TimeoutError:
            return False

    async def _unblock(self, task: asyncio.Task[Reply]) -> None:
        """Ask the server until the read has ended: a command still on its way is not blocked yet, so not just once."""
        self._stop.set()
        pause_s = UNBLOCK_FIRST_S
        while not task.done():
            if isinstance(self._client_id, int):
                try:
                    await self._node.pool.exchange(pack(("CLIENT", "UNBLOCK", self._client_id)), 1)
                except (*FAULTS, errors.AglError):
                    # Nobody can end the read at the server. Entries it hands over now stay pending in the group and
                    # are delivered again.
                    await self._wire.disconnect(nowait=True)
            await asyncio.wait({task}, timeout=pause_s)
            pause_s = min(pause_s * 2, UNBLOCK_MOST_S)
