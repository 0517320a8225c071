"""What an operator or a failover may take from the server under load: scripts, functions, everything."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS, has_begun
from tests.server.conftest import serving
from tests.support.chaos import events_later, feed, steady_load
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.servers import Server
from tests.support.waiting import until

FLUSHES = 30
STORM = 300
WIPES = 5


async def test_scripts_and_functions_flushed_under_load(store: StreamStore, crew: Crew, server: Server) -> None:
    """SCRIPT FLUSH and FUNCTION FLUSH at random moments lose and double nothing, and no process ends."""
    crew.aggregator()
    crew.runner("some_work")
    crew.runner("some_work")
    async with steady_load(store) as ids:
        for _ in range(FLUSHES):
            await events_later(store, random.randrange(1, 15))
            await asyncio.to_thread(server.execute, "SCRIPT", "FLUSH")
            await asyncio.to_thread(server.execute, "FUNCTION", "FLUSH")
    await wait_until_done(store, ids)
    await check_invariants(store, ids, spans=SPANS)
    assert [member.name for member in crew.members if not member.running] == []


async def test_functions_flushed_again_and_again(store: StreamStore, crew: Crew) -> None:
    """A server that loses its functions as fast as they are loaded slows everybody down, and ends nobody."""
    crew.aggregator()
    crew.runner("some_work")
    async with steady_load(store) as ids:
        await events_later(store, 1)
        for _ in range(STORM):
            await store.connection.execute("FUNCTION", "FLUSH")
    await wait_until_done(store, ids)
    await check_invariants(store, ids, spans=SPANS)
    assert [member.name for member in crew.members if not member.running] == []


async def wait_until_blocked(store: StreamStore, readers: int) -> None:
    """Wait until so many readers have nothing to do and wait at the server."""

    async def blocked() -> bool:
        info = await store.connection.execute("INFO", "clients")
        assert isinstance(info, bytes)
        (line,) = [line for line in info.split() if line.startswith(b"blocked_clients:")]
        return int(line.partition(b":")[2]) == readers

    await until(blocked, what="blocked readers")


async def test_everything_flushed_while_runners_block(store: StreamStore, crew: Crew, server: Server) -> None:
    """After FLUSHALL groups and namespace are made again by whoever comes first, and new work is done."""
    crew.aggregator()
    crew.runner("some_work")
    for wipe in range(WIPES):
        # The runner's on the queue, the aggregator's on the log, and after the first wait ours on what is finished.
        await wait_until_blocked(store, 3 if wipe else 2)
        await asyncio.to_thread(server.execute, "FLUSHALL")
        ids = await feed(store, 10)
        await wait_until_done(store, ids)
        await check_invariants(store, ids, spans=SPANS)
    assert [member.name for member in crew.members if not member.running] == []


@pytest.mark.parametrize("with_functions", [False, True], ids=["data", "data-and-functions"])
async def test_everything_flushed_while_an_agent_runs(
    store: StreamStore, crew: Crew, server: Server, tmp_path: Path, with_functions: bool
) -> None:
    """An agent whose rollout has vanished is stopped, its place is free, and the runner goes on with new work."""
    crew.aggregator()
    runner = crew.runner("wait_for_file", concurrency=1)
    task = {"directory": str(tmp_path)}
    vanished = (await store.enqueue_rollout(task)).rollout_id
    await until(lambda: has_begun(tmp_path, vanished, 1), what="the agent")
    await asyncio.to_thread(server.execute, "FLUSHALL")
    if with_functions:
        await asyncio.to_thread(server.execute, "FUNCTION", "FLUSH")
    (new,) = [(await store.enqueue_rollout(task)).rollout_id]
    runner.printed("attempt_given_up")
    (tmp_path / "go").touch()
    await wait_until_done(store, [new])
    assert await store.get_rollout_by_id(vanished) is None
    await check_invariants(store, [new])


async def test_readiness_runs_a_function(settings: Settings, server: Server) -> None:
    """A server that lost its functions is found by the probe, which has them loaded again before any client comes."""
    async with serving(settings) as url, aiohttp.ClientSession(url) as session:
        await asyncio.to_thread(server.execute, "FUNCTION", "FLUSH")
        async with session.get("/ready") as answer:
            assert answer.status == 200
        assert await asyncio.to_thread(server.execute, "FUNCTION", "LIST") != []
