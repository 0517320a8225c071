"""Work that goes on while things are killed, and moments to kill them at."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from agl_streams.connect import Store
from agl_streams.store import StreamStore

BLOCK_MS: Final = 20_000  # as long as any test waits for something that never comes
AHEAD: Final = 24  # rollouts that a steady load has unfinished: all runners have work, and the queue some more
WORK_MS: Final = (2, 30)  # how long an agent works: as short and as long as the steps of the store around it


async def feed(store: Store, count: int, *, work_ms: tuple[float, float] = WORK_MS, **task: Any) -> list[str]:
    """Enqueue rollouts one after the other, as a client does; their ids."""
    ids: list[str] = []
    for _ in range(count):
        work = {"ms": random.uniform(*work_ms), **task}
        ids.append((await store.enqueue_rollout(work)).rollout_id)
    return ids


@asynccontextmanager
async def steady_load(
    store: Store, *, ahead: int = AHEAD, work_ms: tuple[float, float] = WORK_MS
) -> AsyncGenerator[list[str]]:
    """Rollouts are enqueued until the end of the block, some ahead of the runners; their ids, as they come."""
    ids: list[str] = []
    stop = asyncio.Event()

    async def go_on() -> None:
        while not stop.is_set():
            ids.extend(await feed(store, 1, work_ms=work_ms))
            await store.wait_for_rollouts(rollout_ids=ids[-ahead - 1 : -ahead])

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on())
        yield ids
        stop.set()


async def events_later(store: StreamStore, count: int) -> None:
    """Return at once when the log has ``count`` more events than now.

    Random moments are chosen by such a number: uniform over the work, whatever the speed of the machine.
    """
    keys = store.functions(0).keys
    newest = cast("Any", await store.connection.execute("XREVRANGE", keys.log, "+", "-", "COUNT", 1))
    after, left = (newest[0][0] if newest else b"0-0"), count
    reader = store.connection.reader()
    try:
        while left > 0:
            reply = await reader.read(
                "XREAD", "COUNT", left, "BLOCK", BLOCK_MS, "STREAMS", keys.log, after, block_ms=BLOCK_MS
            )
            assert reply, f"{left} of {count} events did not come: is there no work?"
            entries = cast("Any", reply)[0][1]
            after, left = entries[-1][0], left - len(entries)
    finally:
        await reader.close()


async def tally(store: StreamStore) -> Counter[str]:
    """How often each type of event is in the log, by its reason where it has one."""
    kinds: Counter[str] = Counter()
    for _, flat in cast("Any", await store.connection.execute("XRANGE", store.functions(0).keys.log, "-", "+")):
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        kinds[" ".join(fields[name].decode() for name in (b"type", b"reason") if name in fields)] += 1
    return kinds
