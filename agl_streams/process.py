"""How a part runs as a process: one event loop (uvloop where it exists), and a stop that is asked for, not forced."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from agl_streams.logger import get_logger

_log = get_logger()

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
NEW_OBJECTS: Final = 20_000
"""After so many the garbage collector looks at them: some milliseconds of a busy process's objects, a few MB."""


def run_until_stopped(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run ``main(stop)`` in an event loop of its own until it returns.

    The first SIGTERM or SIGINT sets ``stop``: ``main`` then finishes or gives back what it holds and returns. A second
    one cancels it. Call this from the main thread of a process; it returns when ``main`` has.

    Raises:
        KeyboardInterrupt: a second signal cut ``main`` short.
        Exception: whatever ``main`` raised.
    """
    # What is imported by now stays. Without this the collector walks through all of it again and again, and looks for
    # cycles after every 700 new objects, which is one request: a twentieth of the processor time of a busy server.
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        finished = runner.run(_supervise(main))
    if not finished:
        raise KeyboardInterrupt


async def _supervise(main: Callable[[asyncio.Event], Awaitable[None]]) -> bool:
    """True when ``main`` has returned, False when a second signal cut it short."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(main(stop))
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.is_set():
            _log.warning("stop_forced", signal=number.name)
            task.cancel()
        else:
            _log.info("stopping", signal=number.name)
            stop.set()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    try:
        import uvloop  # only a process that runs a part needs it; PyPy has none
    except ImportError:
        return None
    return uvloop.new_event_loop
