"""Serving in one process: the store, the application and uvicorn around a listening socket, until it is to stop."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Generator, Sequence
from typing import Any, Final

import uvicorn
from starlette.middleware.cors import CORSMiddleware

from agl_streams.config import Settings
from agl_streams.server.app import ServerApp
from agl_streams.server.listening import BACKLOG
from agl_streams.server.protocol import PatientProtocol
from agl_streams.store import StreamStore

KEEP_ALIVE_S: Final = 30
"""As Agent-lightning's server: longer than clients keep an idle connection, so that they drop it first."""
TICK_S: Final = 1.0
DRAIN_S: Final = 10
"""How long calls may run on after the stop. What waits or streams is ended at once; the rest takes milliseconds."""
MOST_FILES: Final = 65_536
"""A connection takes some 20 KB of this process's memory: more of them than this is not what one process is for."""
SPARE_FILES: Final = 256
"""File descriptors that connections may not take: the store's, logs, and those of connections being refused."""


class _HttpServer(uvicorn.Server):
    """uvicorn without request logs and without its signal handlers: the process has its own."""

    def __init__(self, app: Any, connections: int) -> None:
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            limit_concurrency=connections,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        )
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Take no more connections, and end when the running calls have."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second whether it is to stop; its date header changes once a second."""
        while not await self.on_tick(0):
            try:
                async with asyncio.timeout(TICK_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone."""
        yield


async def serve_socket(
    settings: Settings,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    cors_origins: Sequence[str] = (),
) -> None:
    """Serve until ``stop`` is set; then let running calls end, and return. Who connects too early waits.

    Args:
        cors_origins: origins of browsers' pages that may call; ``*`` for any.
    """
    async with await StreamStore.connect(settings=settings) as store, ServerApp(store) as app:
        server = _HttpServer(_with_cors(app, cors_origins), _raised_file_limit() - SPARE_FILES)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await app.drain()
        server.stop()
        await serving


def _with_cors(app: ServerApp, origins: Sequence[str]) -> Any:
    if not origins:
        return app
    allowed = ["*"] if "*" in origins else list(origins)
    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=["*"],
        allow_headers=["*"],
        allow_credentials=True,
        expose_headers=["*"],
    )


def _raised_file_limit() -> int:
    """How many files this process may open, after asking for as many as it may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
