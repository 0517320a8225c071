"""Who waits costs nothing: an idle queue with a short socket timeout, thousands of waiters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from agl_streams import consumer, tail
from agl_streams.config import Settings
from agl_streams.models import EnqueueRolloutRequest
from agl_streams.store import StreamStore
from agl_workers import bell
from agl_workers.aggregator import Aggregator
from agl_workers.runner import Runner
from agl_workers.watchdog import Watchdog
from tests.support.chaos import feed
from tests.support.invariants import PATIENCE_S
from tests.support.waiting import until
from tests.workers.support import running

SOCKET_TIMEOUT_S = 2
BLOCK_MS = 1000 * SOCKET_TIMEOUT_S + 500  # a block must outlast what the URL says a read may take
READERS = ("log", "finished")  # whose reads are told from those of functions; the runner's blocks beside them
PERIODS = 2
FEW, MANY = 3, 3_000
OTHERS = 30  # rollouts that finish meanwhile
LEASE_S = 0.5
LEASES = 3
CALLS_PER_LEASE = 15  # the watchdog looks six times, the runner shows itself three times, and a burst follows an event
US_PER_S = 1_000_000


async def numbers(store: StreamStore, section: str) -> dict[str, str]:
    """A section of INFO."""
    info = await store.connection.execute("INFO", section)
    assert isinstance(info, bytes)
    pairs = (line.partition(":") for line in info.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


async def calls(store: StreamStore, command: str) -> int:
    """How often the server has worked a command off since its numbers were reset."""
    stats = (await numbers(store, "commandstats")).get(f"cmdstat_{command}", "calls=0,")
    return int(stats.partition("calls=")[2].partition(",")[0])


async def quick(task: Any) -> float:
    """An agent that has hardly anything to do."""
    return 1.0


async def test_a_short_socket_timeout_does_not_cut_idle_readers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With socket_timeout=2 in the URL readers block for longer, without an error or a reconnect, and then work."""
    for module in (consumer, tail, bell):
        monkeypatch.setattr(module, "BLOCK_MS", BLOCK_MS)
    url = f"{settings.redis_url}?socket_timeout={SOCKET_TIMEOUT_S}"
    with capture_logs() as logs:
        async with (
            await StreamStore.connect(url, settings=settings) as store,
            running(Runner(store, quick, worker_id="idle").run),
            running(Aggregator(store, 0).run),
        ):
            (first,) = await feed(store, 1)
            await store.wait_for_rollouts(rollout_ids=[first])

            connections = (await numbers(store, "stats"))["total_connections_received"]
            reads = await calls(store, "xread")

            async def outlasted() -> bool:
                return await calls(store, "xread") >= reads + PERIODS * len(READERS)

            await until(outlasted, timeout_s=PATIENCE_S, what=f"{PERIODS} blocks of {BLOCK_MS} ms")
            assert (await numbers(store, "stats"))["total_connections_received"] == connections

            (last,) = await feed(store, 1)
            (done,) = await store.wait_for_rollouts(rollout_ids=[last])
            assert done.status == "succeeded"
    assert [line for line in logs if line["log_level"] not in ("debug", "info")] == []


async def commands_with(store: StreamStore, waiters: int) -> int:
    """How many commands the server works off while so many wait for rollouts of their own and others finish."""
    await store.connection.execute("CONFIG", "RESETSTAT")
    requests = [EnqueueRolloutRequest(input=number) for number in range(waiters)]
    awaited = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
    others = [(await store.start_rollout("task")).rollout_id for _ in range(OTHERS)]
    async with asyncio.TaskGroup() as group:
        for rollout_id in awaited:
            group.create_task(store.wait_for_rollouts(rollout_ids=[rollout_id]))

        async def all_wait() -> bool:
            return await calls(store, "fcall_ro") >= waiters

        await until(all_wait, timeout_s=PATIENCE_S, what=f"{waiters} waiters to have looked once")
        before = int((await numbers(store, "stats"))["total_commands_processed"])
        for rollout_id in others:
            await store.update_attempt(rollout_id, "latest", "succeeded")
        await store.wait_for_rollouts(rollout_ids=others)
        after = int((await numbers(store, "stats"))["total_commands_processed"])
        for rollout_id in awaited:
            group.create_task(store.cancel_rollout(rollout_id, "waited for long enough"))
    return after - before


async def test_thousands_of_waiters_cost_the_server_nothing(store: StreamStore) -> None:
    """The server works off as many commands with 3,000 waiters as with 3, and each waiter hears of its rollout."""
    few = await commands_with(store, FEW)
    many = await commands_with(store, MANY)
    # One read may bring several completions, so the number of reads is at most that of the rollouts that finish.
    assert abs(many - few) <= OTHERS


async def test_parts_with_nothing_to_do_hardly_call(settings: Settings) -> None:
    """A runner, an aggregator and a watchdog on an empty queue call a few functions per lease, and no more."""
    short = settings.model_copy(update={"lease_seconds": LEASE_S})
    async with (
        await StreamStore.connect(settings=short) as store,
        running(Runner(store, quick, worker_id="idle").run),
        running(Aggregator(store, 0).run),
        running(Watchdog(store, 0).run),
    ):
        await until(lambda: has_heartbeat(store), timeout_s=PATIENCE_S, what="the runner's first sign of life")
        begin_us, begin = await store.functions(0).time_us(), await calls(store, "fcall")

        async def many_more() -> bool:
            return await calls(store, "fcall") >= begin + LEASES * CALLS_PER_LEASE

        await until(many_more, timeout_s=PATIENCE_S, what=f"{LEASES * CALLS_PER_LEASE} calls of functions")
        # A slow machine only makes this longer.
        assert await store.functions(0).time_us() - begin_us >= LEASES * LEASE_S * US_PER_S


async def has_heartbeat(store: StreamStore) -> bool:
    """Whether the idle runner has said that it lives."""
    worker = await store.get_worker_by_id("idle")
    return worker is not None and worker.last_heartbeat_time is not None
