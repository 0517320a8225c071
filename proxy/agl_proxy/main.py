"""The proxy as a process: ``agl-streams proxy``."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from agl_proxy.app import ProxyApp, ProxyOptions
from agl_proxy.serving import Server, listen, quiet_collector
from agl_proxy.upstream import public_url
from agl_streams.config import Settings
from agl_streams.logger import get_logger
from agl_streams.process import run_until_stopped
from agl_streams.store import StreamStore

_log = get_logger()


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
            server = Server(app)
            quiet_collector()
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            stopping = asyncio.create_task(stop.wait())
            bound_host, bound_port = listener.getsockname()[:2]
            _log.info("proxy_listening", host=bound_host, port=bound_port, upstream=public_url(options.upstream))
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            server.should_exit = True
            await serving
            _log.info("proxy_stopped")
