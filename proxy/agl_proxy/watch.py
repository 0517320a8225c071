"""Notices that a client has hung up, and cancels the work that is being done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final

from agl_proxy.asgi import Receive
from agl_streams import clock

WATCH_AFTER_S: Final = 0.05
"""A task that listens costs a fifth of what the proxy does for a call. Calls that are over sooner need none, and for
the others it is still early enough: a client's leaving must be acted on within a second."""


class ClientWatch:
    """An asynchronous context: while it is open, a client that hangs up cancels the work inside.

    Leaving it is then no error; `gone` says what happened. A watch that is disarmed lets the work finish.

    Args:
        receive: the server's; nothing else may read from it meanwhile, and the request's body must have been read.
        grace_s: asked when the client hangs up: for how long the work may go on before it is cancelled, in seconds.
    """

    def __init__(self, receive: Receive, grace_s: Callable[[], float]) -> None:
        self._receive = receive
        self._grace_s = grace_s
        self._armed = True
        self._watcher: asyncio.Task[None] | None = None
        self.gone = False

    def disarm(self) -> None:
        """From now on the work is finished whatever the client does."""
        self._armed = False

    async def __aenter__(self) -> ClientWatch:
        task = asyncio.current_task()
        assert task is not None  # a coroutine always runs in a task; this is for the type checker
        self._work = task
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._armed = False
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        # A server that stops may cancel the work as well: then it is not ours to swallow.
        return self.gone and self._work.uncancel() == 0 and kind is asyncio.CancelledError

    def _begin(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if (grace_s := self._grace_s()) > 0:
            await clock.sleep_s(grace_s)
        if self._armed:
            self.gone = True
            self._work.cancel()
