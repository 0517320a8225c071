"""What every endless loop of this package needs: patience with a server that is away, an end on request, company."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from agl_streams.errors import StoreUnavailable
from agl_streams.logger import get_logger

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 5.0  # the client itself has tried for seconds before it says that the server is away

_log = get_logger()


async def persist(
    call: Callable[[], Awaitable[T]],
    event: str,
    *,
    stop: asyncio.Event | None = None,
    most_pause_s: float = MOST_PAUSE_S,
    **fields: Any,
) -> T:
    """Await ``call()`` again, after growing pauses, for as long as the server is away. The call must be safe to repeat.

    Args:
        event: the log event of each failure; ``fields`` go with it.
        stop: once it is set, one more failure is the last.

    Raises:
        StoreUnavailable: the call failed and ``stop`` is set.
        Exception: anything else that the call raises.
    """
    pause_s = FIRST_PAUSE_S
    stop = stop or asyncio.Event()
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            _log.warning(event, error=str(error), retry_in_s=pause_s, **fields)
            if stop.is_set():
                raise
        await set_within(stop, pause_s)
        pause_s = min(pause_s * 2, most_pause_s)


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, for so long at most; whether it is."""
    if not event.is_set():
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await event.wait()
        except TimeoutError:
            return False
    return True


async def together(*parts: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until all have returned. The first that raises ends the others, and its error is raised."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
