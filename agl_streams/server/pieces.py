"""One piece for what is written in one turn of the event loop: the head of an answer and its body.

uvicorn writes them one after the other, and each write is a system call here, a packet, and a wake-up of the client.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

MOST_BYTES: Final = 64 * 1024
"""What is kept: the head of an answer is far smaller, and copying more than this costs more than a system call."""


class OnePieceTransport(asyncio.Transport):
    """A transport that keeps what is written until the next write of the same turn, or the end of it."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._kept: bytes | bytearray | memoryview = b""
        self._sending: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it with what is kept, or keep it."""
        if len(data) > MOST_BYTES:
            self._send()
            self._inner.write(data)
        elif self._kept:
            self._inner.write(b"".join((self._take(), data)))
        elif data:
            self._kept = data
            self._sending = self._loop.call_soon(self._send)

    def _take(self) -> bytes | bytearray | memoryview:
        kept, self._kept = self._kept, b""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        return kept

    def _send(self) -> None:
        kept = self._take()
        if kept and not self._inner.is_closing():
            self._inner.write(kept)

    def close(self) -> None:
        """Close once everything is sent."""
        self._send()
        self._inner.close()

    def abort(self) -> None:
        """Close at once."""
        self._take()
        self._inner.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._inner.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport knows of its connection."""
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Receive no more for now."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._inner.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what comes in to another protocol."""
        self._inner.set_protocol(protocol)
