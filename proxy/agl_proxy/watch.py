"""Notices that a client has hung up, and cancels the work that is being done for it."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

from agl_proxy.asgi import Receive
from agl_streams import clock

SWEEP_S: Final = 0.05
"""Seconds until a call is watched, at most. A task that listens, or a timer, for each call costs a tenth of what the
proxy does for it, and most calls of a small model are over by then. For the others it is early enough: a client's
leaving must be acted on within a second."""


class Watches:
    """Begins to watch the clients of all calls that last, at regular moments."""

    def __init__(self) -> None:
        self._new: list[ClientWatch] = []

    def watch(self, receive: Receive) -> ClientWatch:
        """A watch for one call; see `ClientWatch`."""
        watch = ClientWatch(receive)
        if not self._new:
            asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        self._new.append(watch)
        return watch

    def _sweep(self) -> None:
        new, self._new = self._new, []
        for watch in new:
            watch.begin()


class ClientWatch:
    """An asynchronous context: while it is open, a client that hangs up cancels the work inside.

    Leaving it is then no error. A watch that is disarmed lets the work finish.

    Args:
        receive: the server's; nothing else may read from it meanwhile, and the request's body must have been read.

    Attributes:
        grace_s: for how long the work may go on after the client has hung up, in seconds.
        gone: whether the work was cancelled because the client hung up.
    """

    # It knows nothing of the work: a reference back would be a cycle, and keep each answer until the collector runs.

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._armed = True
        self._watcher: asyncio.Task[None] | None = None
        self.grace_s = 0.0
        self.gone = False

    def begin(self) -> None:
        """Listen from now on, if the work is still going on."""
        if self._armed:
            self._watcher = asyncio.create_task(self._watch())

    def disarm(self) -> None:
        """From now on the work is finished whatever the client does."""
        self._armed = False

    async def __aenter__(self) -> ClientWatch:
        task = asyncio.current_task()
        assert task is not None  # a coroutine always runs in a task; this is for the type checker
        self._work = task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._armed = False
        if self._watcher is not None:
            self._watcher.cancel()
        # A server that stops may cancel the work as well: then it is not ours to swallow.
        return self.gone and self._work.uncancel() == 0 and kind is asyncio.CancelledError

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.grace_s > 0:
            await clock.sleep_s(self.grace_s)
        if self._armed:
            self.gone = True
            self._work.cancel()
