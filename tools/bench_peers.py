"""``make bench-peers``: our server and our store beside agentlightning's own, in interleaved pairs of one run.

Run by the interpreter of this project; ``--peer-python`` names the one that has agentlightning. Its side of the load is
tests/conformance/peer_load.py. Its server keeps everything in memory, ours is durable (append-only file, synced each
second). Log messages of both are off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import aiohttp

from agl_streams import clock
from agl_streams.bench.processes import cpu_s, family
from agl_streams.bench.report import Row, paired, seconds_of, show
from agl_streams.bench.work import cycle, spread
from agl_streams.config import Settings, load_settings
from agl_streams.engine import Engine
from agl_streams.store import StreamStore
from agl_streams.telemetry import configure_logging

ROOT: Final = Path(__file__).resolve().parents[1]
LOAD: Final = ROOT / "tests/conformance/peer_load.py"
START_S: Final = 120.0  # agentlightning takes ten seconds to import, several times that on a busy machine
LOOK_S: Final = 0.1
CYCLES: Final = 64  # agentlightning's server does some 50 of them in a second
STORE_CYCLES: Final = 300
BATCHES: Final = 40
BATCH: Final = 100  # spans, as in peer_load.py
US_PER_S: Final = 1_000_000
EXPORTERS: Final = 4  # a server that waits for one exporter's next request measures the exporter


class Load:
    """The process that has agentlightning."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def seconds(self, measure: str, **parameters: Any) -> float:
        """How long a measurement took there."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"measure": measure, **parameters}).encode() + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{LOAD.name} broke off during {measure}; its error is above")
        return float(json.loads(line))


class Side:
    """One of the two that are compared: what does its work, and the processor time that this took."""

    def __init__(self, pids: Sequence[int], work: Callable[[], Awaitable[float]]) -> None:
        self._pids = pids
        self._work = work
        self._cpu_s = 0.0
        self._runs = 0

    async def run(self) -> float:
        """Do the work once; the seconds that it took."""
        before = cpu_s(self._pids)
        seconds = await self._work()
        self._cpu_s += cpu_s(self._pids) - before
        self._runs += 1
        return seconds

    def cpu_us(self, count: int) -> str:
        """Processor time for one of ``count`` pieces of work."""
        return f"{self._cpu_s / self._runs / count * US_PER_S:,.0f}"


async def compared(pairs: int, count: int, unit: str, theirs: Side, ours: Side) -> tuple[float, str]:
    """How many times faster ours is, and the figures behind it. The first run of each does not count."""
    await theirs.run()
    await ours.run()
    ratio, there, here = await paired(pairs, theirs.run, ours.run)
    cpu = f"{ours.cpu_us(count)} against {theirs.cpu_us(count)} µs of processor time each"
    return ratio, f"{count / here:,.0f} against {count / there:,.0f} {unit}/s; {cpu}"


@dataclass(frozen=True)
class Servers:
    """The two servers, and the load on them.

    Attributes:
        our_pids, their_pids: of their processes, the engine's included.
    """

    load: Load
    ours: str
    theirs: str
    our_pids: Sequence[int]
    their_pids: Sequence[int]

    def sides(self, measure: str, **parameters: Any) -> tuple[Side, Side]:
        """Theirs and ours under the same load; processor time is that of the servers."""

        def work(url: str) -> Callable[[], Awaitable[float]]:
            return lambda: self.load.seconds(measure, url=url, **parameters)

        return Side(self.their_pids, work(self.theirs)), Side(self.our_pids, work(self.ours))


async def served(servers: Servers, pairs: int) -> list[Row]:
    """P9 and P10."""
    rows: list[Row] = []
    for tasks in (4, 16):
        sides = servers.sides("client_cycles", count=CYCLES, tasks=tasks)
        ratio, detail = await compared(pairs, CYCLES, "cycles", *sides)
        what = f"cycles through agentlightning's client, {tasks} at once, our server over its own"
        rows.append(Row("P9", what, ratio, 3.0, detail=detail))
    for attributes, name, target in ((10, "P10", 2.0), (1, "-", None)):
        sides = servers.sides("otlp", count=BATCHES, tasks=EXPORTERS, attributes=attributes)
        ratio, detail = await compared(pairs, BATCHES * BATCH, "spans", *sides)
        size = f"1 KB in {attributes} attribute{'s' if attributes > 1 else ''}"
        what = f"OTLP, {EXPORTERS} exporters, batches of {BATCH} spans of {size}, our server over its own"
        rows.append(Row(name, what, ratio, target, detail=detail))
    return rows


async def direct(load: Load, settings: Settings, engine_pid: int, pairs: int) -> list[Row]:
    """P3, and the same with 16 callers of ours, for information."""
    rows: list[Row] = []
    for batched, tasks, target in ((False, 1, 2.0), (True, 1, 6.0), (False, 16, None), (True, 16, None)):

        def there(batched: bool = batched) -> Awaitable[float]:
            return load.seconds("memory_cycles", count=STORE_CYCLES, batched=batched)

        async def here(batched: bool = batched, tasks: int = tasks) -> float:
            # Theirs is new each time as well: it slows down with what it holds.
            async with await StreamStore.connect(settings=settings, namespace=f"bench-{uuid4().hex[:8]}") as store:

                async def step(_: int) -> None:
                    await cycle(store, batched=batched)

                return await seconds_of(lambda: spread(STORE_CYCLES, tasks, step))

        theirs, ours = Side([load.pid], there), Side([os.getpid(), engine_pid], here)
        ratio, detail = await compared(pairs, STORE_CYCLES, "cycles", theirs, ours)
        how = "in one call" if batched else "one by one"
        what = f"cycles in process, {tasks} at once, spans {how}, our store over its memory store (1 at once)"
        rows.append(Row("P3" if target else "-", what, ratio, target, detail=detail))
    return rows


@contextlib.asynccontextmanager
async def running(*command: str, **options: Any) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process that ends with the block."""
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def listening(url: str) -> None:
    """Return when a server answers."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/v1/agl/health") as answer:
                    if answer.ok:
                        return
            await clock.sleep_s(LOOK_S)


def free_port() -> str:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


async def run(peer_python: Path, settings: Settings, engine_pid: int, pairs: int) -> list[Row]:
    """Start both servers and the load, and measure."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    ports = free_port(), free_port()
    ours, theirs = (f"http://127.0.0.1:{port}" for port in ports)
    our_server = (
        *(sys.executable, "-m", "agl_streams.cli", "serve", "--port", ports[0]),
        *("--redis-url", str(settings.redis_url), "--namespace", "bench-peers"),
    )
    agl = str(peer_python.with_name("agl"))
    their_server = (agl, "store", "--host", "127.0.0.1", "--port", ports[1], "--log-level", "ERROR")
    async with (
        running(*our_server, env={**os.environ, "AGL_LOG_LEVEL": "ERROR"}) as here,
        running(*their_server) as there,
        running(str(peer_python), str(LOAD), **pipes) as process,
    ):
        await listening(ours)
        await listening(theirs)
        load = Load(process)
        servers = Servers(load, ours, theirs, [*family(here.pid), engine_pid], family(there.pid))
        return [*await served(servers, pairs), *await direct(load, settings, engine_pid, pairs)]


def main() -> int:
    """Measure and print; 0 when every target is met."""
    parser = argparse.ArgumentParser(description="Our server and store beside agentlightning's own.")
    parser.add_argument("--peer-python", type=Path, required=True, help="interpreter that has agentlightning")
    parser.add_argument("--pairs", type=int, default=5, help="measurements of each kind; the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agl-") as directory:
        settings = load_settings(data_dir=Path(directory), log_level="ERROR")
        configure_logging(settings)
        with Engine.start(settings.data_dir) as engine:
            before = os.getloadavg()[0]
            found = settings.model_copy(update={"redis_url": engine.url})
            rows = asyncio.run(run(given.peer_python.absolute(), found, engine.pid, given.pairs))
    title = f"beside agentlightning 0.3.0 (load average {before:.1f} before, {os.getloadavg()[0]:.1f} after)"
    return show(title, rows, json_output=given.json)


if __name__ == "__main__":
    raise SystemExit(main())
