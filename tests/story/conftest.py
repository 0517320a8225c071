"""What the story needs besides a store: the server's time, the log as a list of events, a model behind the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import pytest

from agl_proxy.app import ProxyApp, ProxyOptions
from agl_proxy.serving import Server, listen
from agl_streams import ProxyLLM, clock
from agl_streams.events import Event, decode
from agl_streams.store import StreamStore
from tests.support.engine_standin import EngineStandin, engine_standin
from tests.support.waiting import until

US_PER_S = 1_000_000


class ServerTime:
    """The time by which the server judges leases and limits. It stands still until `passes` moves it.

    The watchdog looks three times in each lease. Were it away for longer, it would give grace instead of judging.
    """

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._now_us = clock.now_us()
        for shard in range(store.shards):
            store.functions(shard).clock_us = lambda: self._now_us

    async def passes(self, seconds: float) -> None:
        """Let time pass, the watchdog watching."""
        end_us = self._now_us + round(seconds * US_PER_S)
        step_us = round(self._store.settings.lease_seconds * US_PER_S) // 3
        while self._now_us < end_us:
            await self._watch()
            self._now_us = min(self._now_us + step_us, end_us)
        await self._watch()

    async def _watch(self) -> None:
        for shard in range(self._store.shards):
            await self._store.expire_once(shard)


ReadLog = Callable[[], Awaitable[list[Event]]]


@pytest.fixture
async def server_time(store: StreamStore) -> ServerTime:
    """The server's time, under the test's control; the watchdog has had its first look."""
    server_time = ServerTime(store)
    await server_time.passes(0)
    return server_time


@pytest.fixture
def read_log(store: StreamStore) -> ReadLog:
    """Reads the whole log of the store's first shard."""

    async def read() -> list[Event]:
        entries = cast("Any", await store.connection.execute("XRANGE", store.functions(0).keys.log, "-", "+"))
        return [decode(entry_id, fields) for entry_id, fields in entries]

    return read


@pytest.fixture
async def engine() -> AsyncGenerator[EngineStandin]:
    """A server that speaks as vLLM does, and always says the same."""
    async with engine_standin() as standin:
        yield standin


@pytest.fixture
async def model(store: StreamStore, engine: EngineStandin) -> AsyncGenerator[ProxyLLM]:
    """The model behind a proxy that is being served."""
    async with ProxyApp(store, ProxyOptions(upstream=engine.url)) as app:
        listener = listen("127.0.0.1", 0)
        server = Server(app)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started, what="the proxy to listen")
        yield ProxyLLM(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", model="tiny")
        server.should_exit = True
        await serving
