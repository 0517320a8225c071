"""Spans on their way from an agent to the store: in order, from any thread, without making the agent wait."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from agl_streams.errors import AttemptEnded
from agl_streams.logger import get_logger

if TYPE_CHECKING:
    from agl_streams.span import Span

Sink: TypeAlias = Callable[[list["Span"]], Awaitable[None]]
"""Stores spans in the order given and is safe to repeat: after an error it gets the same spans again."""

log: Final = get_logger()


class SpanBuffer:
    """Keeps emitted spans until the sink has them.

    A span is handed on as soon as the loop gets to it, because its place among the model calls is given out by the
    store. At most one call of the sink runs at a time. What it refuses stays at the front.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting: deque[Span] = deque()
        self._lock = threading.Lock()
        self._draining = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: asyncio.Task[None] | None = None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let this loop hand spans on from now on; without one they wait for `flush`."""
        self._loop = loop

    def put(self, spans: Sequence[Span]) -> None:
        """Add spans, from any thread. Never blocks on the sink.

        Raises:
            AttemptEnded: the loop that ran the attempt is gone.
        """
        with self._lock:
            self._waiting.extend(spans)
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError as error:
            raise AttemptEnded("the process that ran this attempt has stopped; the agent should stop too") from error

    async def flush(self) -> None:
        """Return when the sink has every span that was put before the call.

        Raises:
            Exception: whatever the sink raises; the spans stay and a later flush tries again.
        """
        async with self._draining:
            while batch := self._take():
                try:
                    await self._sink(batch)
                except BaseException:
                    self._put_back(batch)
                    raise

    def _start(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            await self.flush()
        except Exception as error:  # noqa: BLE001 — nobody awaits this task; the runner's flush tries again and raises
            log.warning("spans_not_stored_yet", error=str(error), waiting=len(self._waiting))

    def _take(self) -> list[Span]:
        with self._lock:
            batch = list(self._waiting)
            self._waiting.clear()
        return batch

    def _put_back(self, batch: list[Span]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
