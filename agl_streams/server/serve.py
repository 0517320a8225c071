"""The server as processes: ``agl-streams serve``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from agl_streams.config import Settings
from agl_streams.logger import get_logger
from agl_streams.parts import Child
from agl_streams.process import run_until_stopped
from agl_streams.server.listening import listen
from agl_streams.server.serving import DRAIN_S, serve_socket
from agl_streams.server.supervisor import keep_running
from agl_streams.store import StreamStore

STOP_S: Final = DRAIN_S + 5.0
"""How long a process may take to stop before it is killed: above what it gives running calls."""

_log = get_logger()


def run(
    settings: Settings,
    *,
    host: str,
    port: int,
    workers: int = 1,
    aggregator: bool = True,
    cors_origins: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT, then let running calls end.

    Args:
        port: 0 for any free one; the event ``server_listening`` names it.
        workers: processes that serve; they share nothing but the port. One serves in this process.
        aggregator: run the aggregator and the watchdog too, as a process of their own; it is started again if it dies.
        cors_origins: origins of browsers' pages that may call; ``*`` for any.

    Raises:
        ConfigError: the address cannot be listened on.
        AglError: the store cannot be used.
    """
    with contextlib.ExitStack() as sockets:
        listeners = [sockets.enter_context(listener) for listener in listen(host, port, workers)]
        run_until_stopped(partial(_serve, settings, listeners, aggregator, cors_origins))
    _log.info("server_stopped")


def run_worker(settings: Settings, *, listener: socket.socket, cors_origins: Sequence[str]) -> None:
    """One of several processes that serve on one port. Started by `run`, as a child."""
    run_until_stopped(partial(serve_socket, settings, listener, cors_origins=cors_origins))


async def _serve(
    settings: Settings,
    listeners: Sequence[socket.socket],
    aggregator: bool,
    cors_origins: Sequence[str],
    stop: asyncio.Event,
) -> None:
    # What is wrong with the store is told here, once, and not by each child again and again.
    await (await StreamStore.connect(settings=settings)).close()
    host, port = listeners[0].getsockname()[:2]
    _log.info("server_listening", host=host, port=port, workers=len(listeners), url=f"http://{host}:{port}")
    parts: list[Coroutine[Any, Any, None]] = []
    if aggregator:
        parts.append(keep_running(Child(name="aggregator", target="aggregate", settings=settings), stop))
    if len(listeners) == 1:
        parts.append(serve_socket(settings, listeners[0], stop, cors_origins=cors_origins))
    else:
        parts += [keep_running(_worker(settings, *numbered, cors_origins), stop) for numbered in enumerate(listeners)]
    await _together(parts, stop)


def _worker(settings: Settings, number: int, listener: socket.socket, cors_origins: Sequence[str]) -> Child:
    return Child(
        name=f"server-{number}",
        target=f"{__name__}:{run_worker.__name__}",
        settings=settings,
        arguments={"listener": listener, "cors_origins": tuple(cors_origins)},
        longest_stop_s=STOP_S,
    )


async def _together(parts: Sequence[Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Run all parts to their end. The first that fails stops the others, and its error is raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        stop.set()
        await asyncio.wait(tasks)
    finally:
        for task in tasks:  # only where this one was cancelled is any of them left
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        task.result()
