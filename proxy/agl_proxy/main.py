"""The proxy as a process: ``agl-streams proxy``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from functools import partial
from typing import Final

import structlog
import uvicorn

from agl_proxy.app import ProxyApp, ProxyOptions
from agl_proxy.upstream import public_url
from agl_streams.config import Settings
from agl_streams.errors import ConfigError
from agl_streams.process import run_until_stopped
from agl_streams.store import StreamStore

KEEP_ALIVE_S: Final = 75
"""Longer than HTTP clients keep idle connections (httpx 5 s, aiohttp 15 s), so that they drop them first and never
send a request into a connection that is being closed."""
DRAIN_S: Final = 30
"""After SIGTERM: how long running calls may take to end, before they are cut off and stored as incomplete."""
BACKLOG: Final = 2048
"""Connections waiting to be accepted: a trainer may start all its rollouts at once."""

_log = structlog.get_logger()


def run(
    settings: Settings,
    *,
    upstream: str,
    host: str,
    port: int,
    strip: bool = False,
    allow_unattributed: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, then let running calls end.

    Args:
        upstream: base URL of the inference server, with or without a final ``/v1``.
        port: 0 for any free one; the event ``proxy_listening`` names it.
        strip: take out of answers the token ids and log-probabilities that their client did not ask for.
        allow_unattributed: let calls outside any rollout pass, unrecorded.

    Raises:
        ConfigError: the address cannot be listened on.
        AglError: the store cannot be used.
    """
    options = ProxyOptions(
        upstream=upstream.rstrip("/").removesuffix("/v1"),
        capture=settings.capture,
        strip=strip,
        allow_unattributed=allow_unattributed,
        max_request_bytes=settings.max_request_bytes,
    )
    run_until_stopped(partial(_serve, settings, options, host, port))


async def _serve(settings: Settings, options: ProxyOptions, host: str, port: int, stop: asyncio.Event) -> None:
    with contextlib.closing(listen(host, port)) as listener:
        async with await StreamStore.connect(settings=settings) as store, ProxyApp(store, options) as app:
            server = Server(server_config(app))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            stopping = asyncio.create_task(stop.wait())
            bound = listener.getsockname()
            _log.info("proxy_listening", host=bound[0], port=bound[1], upstream=public_url(options.upstream))
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            server.should_exit = True
            await serving
            _log.info("proxy_stopped")


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address, not yet accepting.

    Raises:
        ConfigError: somebody else listens there, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"
        ) from error


def server_config(app: ProxyApp) -> uvicorn.Config:
    """How uvicorn serves the proxy: it adds no header of its own and logs no request."""
    return uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone."""
        yield
