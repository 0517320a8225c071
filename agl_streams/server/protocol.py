"""uvicorn's HTTP protocol with what it lacks: a request that trickles in is cut off, an answer leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agl_streams.server.asgi import ABORT
from agl_streams.server.pieces import OnePieceTransport

PATIENCE_S: Final = 20.0
"""For the head of a request, and again for each stretch of its body."""
HEAD_BYTES: Final = 64 * 1024
"""Of a request's first line and headers: browsers and proxies send a few KB."""
STRETCH_BYTES: Final = 20 * 1024
"""What a body must bring in each stretch: 1 KB a second is slower than any line that is worth waiting for."""


class PatientProtocol(HttpToolsProtocol):
    """One connection. Between requests uvicorn's keep-alive time-out holds; within one, this."""

    _timer: asyncio.TimerHandle | None = None
    _in_request = True  # the first is waited for no longer than any other goes on
    _in_head = True
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for the first request."""
        super().connection_made(OnePieceTransport(transport))
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Count, and parse."""
        self._received += len(data)
        super().data_received(data)
        # Most requests are whole when they come, and need no timer.
        if not self._in_request:
            self._disarm()
        elif self._timer is None:
            self._arm()
        if self._in_request and self._in_head and self._received > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][ABORT] = self.transport.abort  # pyright: ignore[reportTypedDictNotRequiredAccess] — uvicorn always sets it
        self._in_request = self._in_head = True
        self._received = 0

    def on_headers_complete(self) -> None:
        """Its head is here."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it is here."""
        self._in_request = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        self._timer = self.loop.call_later(PATIENCE_S, self._look)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._in_head or self._received < STRETCH_BYTES:
            self.transport.abort()
        else:
            self._received = 0
            self._arm()
