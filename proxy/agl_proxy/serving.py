"""How the proxy's application is served: a listening socket and uvicorn, set up for long calls and many of them."""

from __future__ import annotations

import contextlib
import gc
import socket
from collections.abc import Generator
from typing import Final

import uvicorn

from agl_proxy.app import ProxyApp
from agl_streams.errors import ConfigError

KEEP_ALIVE_S: Final = 75
"""Longer than HTTP clients keep idle connections (httpx 5 s, aiohttp 15 s), so that they drop them first and never
send a request into a connection that is being closed."""
DRAIN_S: Final = 30
"""After SIGTERM: how long running calls may take to end, before they are cut off and stored as incomplete."""
BACKLOG: Final = 2048
"""Connections waiting to be accepted: a trainer may start all its rollouts at once."""


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to an address.

    Raises:
        ConfigError: somebody else listens there, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address") from error


COLLECT_AFTER: Final = 50_000
"""Objects made before the cyclic garbage collector looks. An answer of 200 tokens is parsed into 1,500 objects without
a cycle; Python's default of 700 would look twice at each of them, which costs a sixth of the proxy's time."""


def quiet_collector() -> None:
    """Set up the cyclic garbage collector for a process that only serves: what is there now is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)  # the older generations: as before, in proportion


class Server(uvicorn.Server):
    """uvicorn without headers and request logs of its own, and without its signal handlers: the process has them."""

    def __init__(self, app: ProxyApp) -> None:
        config = uvicorn.Config(
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
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone."""
        yield
