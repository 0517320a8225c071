"""Our HTTP server as real processes, for the benchmarks: started, found to answer, watched, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from agl_streams import clock
from agl_streams.bench.processes import cpu_s, family
from agl_streams.bench.scratch import engine_cpu_s
from agl_streams.parts import Child, stop_children
from agl_streams.server import serve
from agl_streams.store import StreamStore

HOST: Final = "127.0.0.1"
HEALTH: Final = "/v1/agl/health"
START_S: Final = 60.0
LOOK_S: Final = 0.05
CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time, in seconds: of each server process, the busiest first, and of the engine."""

    servers: list[float]
    engine: float

    def since(self, before: Spent) -> Spent:
        """What was spent after ``before``."""
        servers = [now - then for now, then in zip(self.servers, before.servers, strict=True)]
        return Spent(sorted(servers, reverse=True), self.engine - before.engine)


@dataclass(frozen=True, slots=True)
class Served:
    """A running server.

    Attributes:
        pids: of the processes that serve.
    """

    url: str
    pids: list[int]
    store: StreamStore

    async def spent(self) -> Spent:
        """Processor time taken so far."""
        return Spent([cpu_s([pid]) for pid in self.pids], await engine_cpu_s(self.store))


@contextlib.asynccontextmanager
async def serving(store: StreamStore, processes: int) -> AsyncGenerator[Served]:
    """A server on the namespace of a store, without an aggregator; it ends with the block."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    child = Child(
        name="server",
        target=f"{serve.__name__}:{serve.run.__name__}",
        settings=store.settings,
        arguments={"host": HOST, "port": port, "workers": processes, "aggregator": False},
    )
    started = [(child, child.start())]
    try:
        url = f"http://{HOST}:{port}"
        await _all_answer(url)
        pid = started[0][1].pid or 0
        yield Served(url, [pid] if processes == 1 else _workers(pid), store)
    finally:
        await asyncio.to_thread(stop_children, started)


async def _all_answer(url: str) -> None:
    """Return when every process answers: each of many new connections goes to one of them, and waits there for it."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        async with asyncio.timeout(START_S):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    await asyncio.gather(*(_asked(session, url + HEALTH) for _ in range(CONNECTIONS)))
                    return
                await clock.sleep_s(LOOK_S)


async def _asked(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(url) as answer:
        answer.raise_for_status()


def _workers(pid: int) -> list[int]:
    """The processes that serve, below the one that was started; not its helpers."""
    return [one for one in family(pid)[1:] if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
