"""A real server on a free port, in the test's own event loop, and a plain HTTP client for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.server.listening import listen
from agl_streams.server.serving import serve_socket
from agl_streams.store import StreamStore
from tests.server.support import Api


@contextlib.asynccontextmanager
async def serving(
    settings: Settings, *, port: int = 0, cors_origins: tuple[str, ...] = (), send_buffer: int | None = None
) -> AsyncGenerator[str]:
    """The URL of a server that runs until the block is left.

    Args:
        send_buffer: bytes that the kernel keeps for a client that does not read; None: some MB.
    """
    (listener,) = listen("127.0.0.1", port, 1)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    host, bound = listener.getsockname()
    stop = asyncio.Event()
    task = asyncio.create_task(serve_socket(settings, listener, stop, cors_origins=cors_origins))
    try:
        yield f"http://{host}:{bound}"
    finally:
        stop.set()
        await task


@pytest.fixture
async def server_url(settings: Settings) -> AsyncGenerator[str]:
    """Where the server listens."""
    async with serving(settings) as url:
        yield url


@pytest.fixture
async def api(server_url: str) -> AsyncGenerator[Api]:
    """Calls the server and nothing else: no retries, no models."""
    async with aiohttp.ClientSession(server_url, auto_decompress=False) as session:
        yield Api(session)


@pytest.fixture
async def direct(store: StreamStore) -> StreamStore:
    """The store itself, on the namespace that the server serves: what is true, and how a test gets its rollouts."""
    return store
