"""The consumer-group loop of a runner process: blocked while it has a free place, begins what it is handed.

One blocked reader per shard and process (the server re-runs every blocked read on each XADD). Entries it cannot begin
go back at once. A blocked read is never cancelled: `stop` asks the server to end it and takes the answer.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from agl_streams import clock
from agl_streams.errors import CommandFailed, OutOfMemory, StoreUnavailable
from agl_streams.functions import ShardFunctions
from agl_streams.keys import escape
from agl_streams.logger import get_logger
from agl_streams.models import AttemptedRollout
from agl_streams.projections import decode_rollout
from agl_streams.store import StreamStore
from agl_streams.store.base import us
from agl_streams.values import check_worker_id, new_attempt_id

BLOCK_MS: Final = 10_000  # only bounds how long a dead connection goes unnoticed; work ends the block at once
ROTATE_MS: Final = 250  # with fewer free places than shards, how long one shard is listened to before the next
RETRY_S: Final = 0.2  # between reads of a server that is away; the connection itself backs off further

Entry = tuple[str, str]
"""Entry id and rollout id."""
Begin = tuple[str, str, str]
"""Entry id, rollout id and the id of the attempt that is to be opened."""

_log = get_logger()


class RolloutConsumer:
    """Takes rollouts for one worker process. Use by one task at a time."""

    def __init__(self, store: StreamStore, worker_id: str, lease_seconds: float | None = None) -> None:
        """
        Args:
            worker_id: unique among living processes: it names the consumer in the group.
            lease_seconds: None takes the store's default; how soon a dead runner is noticed.
        """
        self._store = store
        self._worker = escape(check_worker_id(worker_id))
        self._lease_us = us(store.settings.lease_seconds if lease_seconds is None else lease_seconds)
        self._readers = [store.connection.reader() for _ in range(store.shards)]
        self._unanswered: dict[int, list[Begin]] = {}
        self._first = 0
        self._stopped = False

    async def next(self, places: int) -> list[AttemptedRollout]:
        """Wait for work and begin up to ``places`` rollouts. An empty list means: stopped, or nothing yet (ask again).

        Raises:
            StoreUnavailable: the server stayed away while attempts were being begun; the next call asks for them again.
            OutOfMemory: the server is full; the entries are back in the queue. Wait before asking again.
        """
        if self._stopped or places <= 0:
            return []
        # Unheard, the server may have begun them; then the worker's heartbeat would keep them open with nobody at work.
        if self._unanswered and (begun := await self._open({})):
            return begun
        shards = [(self._first + offset) % self._store.shards for offset in range(min(places, self._store.shards))]
        self._first = (self._first + len(shards)) % self._store.shards
        block_ms = BLOCK_MS if len(shards) == self._store.shards else ROTATE_MS
        found = await self._read_any(shards, -(-places // len(shards)), block_ms)
        return await self._begin(found, places)

    async def stop(self) -> None:
        """End the pending `next`; what was handed over meanwhile is begun or given back. No more work is taken."""
        self._stopped = True
        for reader in self._readers:
            await reader.stop()

    async def close(self) -> None:
        """Stop, give back what was handed over and not begun, leave the group, and close the connections."""
        await self.stop()
        for shard, reader in enumerate(self._readers):
            await reader.close()
            await self._store.functions(shard).leave(self._worker)

    async def _read_any(self, shards: list[int], count: int, block_ms: int) -> dict[int, list[Entry]]:
        """Blocks until one shard has work, then ends the reads of the others and takes their answers too."""
        tasks = {shard: asyncio.create_task(self._read(shard, count, block_ms)) for shard in shards}
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # What came back stays pending in the group, and `close` gives it back from there.
            await self._collect(tasks)
            raise
        return await self._collect(tasks)

    async def _collect(self, tasks: dict[int, asyncio.Task[list[Entry]]]) -> dict[int, list[Entry]]:
        for shard, task in tasks.items():
            if not task.done():
                await self._readers[shard].stop()
        await asyncio.wait(tasks.values())
        return {shard: task.result() for shard, task in tasks.items()}

    async def _read(self, shard: int, count: int, block_ms: int) -> list[Entry]:
        if self._stopped:  # `stop` ends reads that are pending; this one had not begun
            return []
        functions = self._store.functions(shard)
        tasks = functions.keys.tasks
        try:
            return _entries(
                await self._readers[shard].read(
                    "XREADGROUP", "GROUP", "runners", self._worker, "COUNT", count, "BLOCK", block_ms,
                    "STREAMS", tasks, ">", block_ms=block_ms,
                )
            )  # fmt: skip
        except (StoreUnavailable, CommandFailed) as error:
            await self._recover(functions, error)
            return []

    async def _recover(self, functions: ShardFunctions, error: StoreUnavailable | CommandFailed) -> None:
        """After a cut, wait a little; after a flush or failover, make the group again. Then the caller asks again."""
        _log.warning("consumer_interrupted", shard_prefix=functions.keys.prefix, error=str(error))
        if isinstance(error, CommandFailed):
            if error.code not in ("NOGROUP", "UNBLOCKED"):
                raise error
            await functions.load()
        elif not self._stopped:
            await clock.sleep_s(RETRY_S)

    async def _begin(self, found: dict[int, list[Entry]], places: int) -> list[AttemptedRollout]:
        """Begin what there are places for, and give the rest back."""
        free = 0 if self._stopped else places
        named: dict[int, list[Begin]] = {}
        for shard, entries in found.items():
            wanted, surplus = entries[:free], entries[free:]
            free -= len(wanted)
            named[shard] = [(entry, rollout_id, new_attempt_id()) for entry, rollout_id in wanted]
            if surplus:
                await self._store.functions(shard).release(surplus)
        return await self._open(named)

    async def _open(self, named: dict[int, list[Begin]]) -> list[AttemptedRollout]:
        """Open attempts; what a shard that fails leaves unanswered is kept, and what the others gave is returned."""
        begun: list[AttemptedRollout] = []
        failure: StoreUnavailable | None = None
        self._unanswered |= {shard: entries for shard, entries in named.items() if entries}
        for shard, entries in tuple(self._unanswered.items()):
            try:
                begun += await self._open_in(self._store.functions(shard), entries)
            except OutOfMemory as error:
                failure = error
            except StoreUnavailable as error:
                failure = error
                continue
            del self._unanswered[shard]
        if failure is not None and not begun:
            raise failure
        return begun

    async def _open_in(self, functions: ShardFunctions, named: list[Begin]) -> list[AttemptedRollout]:
        try:
            views = await functions.begin(named, self._worker, self._lease_us)
        except OutOfMemory:
            # Delivered and never begun, a rollout would be given up after a few rounds of this.
            await functions.release([(entry, rollout_id) for entry, rollout_id, _ in named])
            raise
        return [cast("AttemptedRollout", decode_rollout(view)) for view in views if view]


def _entries(reply: Any) -> list[Entry]:
    """The entries of an XREADGROUP reply of one stream. Ones deleted meanwhile have no fields and are left out.

    One that somebody else wrote, without a rollout, is void like any that no rollout waits for: begin drops it.
    """
    return [(entry.decode(), _rollout_of(fields)) for entry, fields in reply[0][1] if fields] if reply else []


def _rollout_of(fields: list[bytes]) -> str:
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return pairs.get(b"rollout", b"").decode(errors="replace")
