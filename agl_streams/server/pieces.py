"""One piece for what is written in one turn of the event loop: the head of an answer and its body.

uvicorn writes them one after the other, and each write is a system call here, a packet, and a wake-up of the client.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

MOST_BYTES: Final = 64 * 1024
"""What is kept: a stream that never waits must come to feel that its reader does not read."""


class OnePieceTransport(asyncio.Transport):
    """A transport that sends at the end of the turn what was written in it."""

    def __init__(self, inner: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._written: list[bytes | bytearray | memoryview] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it until the end of the turn."""
        if not self._written:
            self._loop.call_soon(self._send)
        self._written.append(data)
        self._size += len(data)
        if self._size > MOST_BYTES:
            self._send()

    def _send(self) -> None:
        written, self._written, self._size = self._written, [], 0
        if written and not self._inner.is_closing():
            self._inner.write(b"".join(written))

    def close(self) -> None:
        """Close once everything is sent."""
        self._send()
        self._inner.close()

    def abort(self) -> None:
        """Close at once."""
        self._written = []
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
