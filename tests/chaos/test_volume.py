"""Many rollouts through one namespace: the queue is as long as what waits, and memory is what finished work takes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from agl_streams.config import Settings
from agl_streams.models import EnqueueRolloutRequest
from agl_streams.store import StreamStore
from tests.support.chaos_processes import Crew, Member
from tests.support.servers import Server, Servers
from tests.support.waiting import until

ROLLOUTS = int(os.environ.get("SOAK_ROLLOUTS", "200000"))
FEW = 3_000  # of the usual run
BULK = 500
AHEAD = 2_000  # unfinished rollouts, at most
RUNNERS = 3
PLACES = 8
BYTES_EACH = 6_000  # docs/operations.md: a finished rollout with a model call; here with a reward
GROWTH = 1.05  # of memory per rollout between the first half and the second: less than one leaking key makes
RSS_GROWTH = 16 * 1024 * 1024  # of a process over the second half: allocators breathe, a leak does not stop


@pytest.fixture
def server(servers: Servers) -> Server:
    """A server as one runs it: it loses nothing here, and to wait for the disk would only take time."""
    return servers.start(config={"appendfsync": "everysec", "auto-aof-rewrite-min-size": "64mb"})


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The usual lease: nobody is killed."""
    return settings.model_copy(update={"lease_seconds": 30.0})


@dataclass(frozen=True)
class Look:
    """What a look at the server and at the processes shows.

    Attributes:
        finished: rollouts that are.
        memory: bytes of the server's data set.
        resident: bytes of each process, in the order of the crew.
    """

    finished: int
    memory: int
    resident: list[int]


def resident_bytes(member: Member) -> int:
    """What a process holds."""
    pages = int(Path(f"/proc/{member.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def number(store: StreamStore, *command: str) -> int:
    """The answer of a command that counts."""
    return cast("int", await store.connection.execute(*command))


async def all_are_done(store: StreamStore) -> bool:
    """Whether every rollout is finished, and the aggregator has seen it."""
    keys = store.functions(0).keys
    n, folded = cast("list[bytes]", await store.connection.execute("HMGET", keys.meta, "n", "folded"))
    return n == folded and await number(store, "XLEN", keys.finished) == await number(store, "ZCARD", keys.created)


async def look(store: StreamStore, crew: Crew) -> Look:
    """As things are."""
    info = cast("bytes", await store.connection.execute("INFO", "memory"))
    (line,) = [line for line in info.splitlines() if line.startswith(b"used_memory_dataset:")]
    finished = await number(store, "XLEN", store.functions(0).keys.finished)
    return Look(finished, int(line.partition(b":")[2]), [resident_bytes(member) for member in crew.members])


async def let_through(store: StreamStore, count: int) -> None:
    """Enqueue so many rollouts, never more than AHEAD before the runners, and watch the queue meanwhile."""
    keys = store.functions(0).keys

    async def open_ones() -> int:
        """How many are not finished. What begins between the two counts is not there yet: nobody else enqueues."""
        return await number(store, "ZCARD", keys.created) - await number(store, "XLEN", keys.finished)

    async def few_are_ahead() -> bool:
        return await open_ones() < AHEAD

    for at in range(0, count, BULK):
        await until(few_are_ahead, timeout_s=120.0, what="the runners to come near")
        bulk = [EnqueueRolloutRequest(input={"number": n}) for n in range(at, min(at + BULK, count))]
        await store.enqueue_many_rollouts(bulk)
        unfinished = await open_ones()
        # Looked at later: what has begun or ended since can only make it shorter.
        assert await number(store, "XLEN", keys.tasks) <= unfinished
    await until(lambda: all_are_done(store), timeout_s=120.0, what="the runners to finish")


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "count", [pytest.param(FEW, id="few"), pytest.param(ROLLOUTS, id="many", marks=pytest.mark.soak)]
)
async def test_many_rollouts_through(store: StreamStore, crew: Crew, count: int) -> None:
    """The queue never holds more than what is unfinished, and the second half takes no more memory than the first."""
    crew.aggregator()
    for _ in range(RUNNERS):
        crew.runner("nothing", concurrency=PLACES)
    await let_through(store, count // 10)  # functions, pools and buffers are there from now on
    looks = [await look(store, crew)]
    for _ in range(2):
        await let_through(store, count * 9 // 20)
        looks.append(await look(store, crew))
    warm, half, whole = looks
    each = [(b.memory - a.memory) / (b.finished - a.finished) for a, b in ((warm, half), (half, whole))]
    sys.stdout.write(f"{whole.finished} finished, {each[0]:.0f} and {each[1]:.0f} bytes each, {whole}\n")

    keys = store.functions(0).keys
    assert [one.finished for one in looks] == [count // 10, count * 11 // 20, count]
    assert await number(store, "XLEN", keys.tasks) == 0
    assert await number(store, "XLEN", keys.finished) == await number(store, "ZCARD", keys.status("succeeded"))
    assert max(each) < BYTES_EACH
    if count > FEW:
        assert each[1] < each[0] * GROWTH
        assert max(b - a for a, b in zip(half.resident, whole.resident, strict=True)) < RSS_GROWTH
    assert [member.terminate() for member in crew.members] == [0] * (RUNNERS + 1)
