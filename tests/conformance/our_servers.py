"""Serves our store to the tests, one fresh namespace after another, on an embedded engine of its own.

Run by the interpreter that has agl-streams, for tests in another one that has agentlightning. A line of input starts a
server, which is told in a line of output; the next line ends it. What runs is what `agl-streams serve` runs: server,
aggregator and watchdog.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from agl_streams.config import Settings, load_settings
from agl_streams.engine import Engine
from agl_streams.server.listening import listen
from agl_streams.server.serving import serve_socket
from agl_streams.store import StreamStore
from agl_streams.telemetry import configure_logging
from agl_workers.aggregator import Aggregator
from agl_workers.watchdog import Watchdog


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve one namespace on a free port until ``stop`` is set."""
    (listener,) = listen("127.0.0.1", 0, 1)
    host, port = listener.getsockname()[:2]
    async with await StreamStore.connect(settings=settings) as store, asyncio.TaskGroup() as parts:
        parts.create_task(serve_socket(settings, listener, stop))
        parts.create_task(Aggregator(store, 0).run(stop))
        parts.create_task(Watchdog(store, 0).run(stop))
        line = json.dumps(
            {"url": f"http://{host}:{port}", "redis": settings.redis_url, "namespace": settings.namespace}
        )
        print(line, flush=True)


async def main(redis_url: str) -> None:
    """Serve namespace after namespace until the input ends."""
    number = 0
    while await asyncio.to_thread(sys.stdin.readline):
        number += 1
        settings = load_settings(redis_url=redis_url, namespace=f"conformance-{number}")
        stop = asyncio.Event()
        serving = asyncio.create_task(serve(settings, stop))
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await serving
        await ended


if __name__ == "__main__":
    configure_logging(load_settings(log_level="WARNING"))
    with tempfile.TemporaryDirectory(prefix="agl-") as directory, Engine.start(Path(directory)) as engine:
        asyncio.run(main(engine.url))
