"""Child processes that are kept running: started again when they die, stopped together."""

from __future__ import annotations

import asyncio
from multiprocessing.context import SpawnProcess
from typing import Final

from agl_streams import clock
from agl_streams.logger import get_logger
from agl_streams.parts import Child, how_it_ended, stop_children

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 5.0
STEADY_S: Final = 30.0
"""A child that lived this long died of something new: it is started again at once."""

_log = get_logger()


async def keep_running(child: Child, stop: asyncio.Event) -> None:
    """Run a child until ``stop`` is set, again and again if it dies; then let it end, and return."""
    pause_s = FIRST_PAUSE_S
    while not stop.is_set():
        began = clock.monotonic_s()
        process = child.start()
        try:
            await _until_end(process, stop)
        finally:
            await asyncio.to_thread(stop_children, [(child, process)])
        if stop.is_set():
            return
        lived_s = clock.monotonic_s() - began
        pause_s = FIRST_PAUSE_S if lived_s > STEADY_S else pause_s
        how = how_it_ended(process)
        _log.error("child_died", child=child.name, how=how, lived_s=round(lived_s, 1), again_in_s=pause_s)
        await _set_within(stop, pause_s)
        pause_s = min(pause_s * 2, MOST_PAUSE_S)


async def _until_end(process: SpawnProcess, stop: asyncio.Event) -> None:
    """Return when the child has died or is to stop."""
    loop, died = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process.sentinel, died.set)
    tasks = [asyncio.create_task(died.wait()), asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(process.sentinel)
        for task in tasks:
            task.cancel()


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
