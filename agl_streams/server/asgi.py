"""A request and an answer, as thin as they can be over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
"""Exactly so, without a charset: Agent-lightning's client refuses anything else."""
STALLED_S: Final = 30.0
"""How long a reader of a stream may read nothing: until then what it has not read takes some 100 KB of memory."""
ABORT: Final = "agl_streams.abort"
"""Where our protocol puts, among a request's state, what cuts its connection."""


class ClientGone(Exception):
    """The client closed the connection: nobody is left to be answered."""


@dataclass(slots=True)
class Answer:
    """An answer in one piece.

    Attributes:
        media_type: None for an empty body without a type.
        headers: others than length and type.
    """

    body: bytes
    status: int = 200
    media_type: bytes | None = JSON
    headers: Headers = field(default_factory=Headers)

    async def send(self, send: Send) -> None:
        """Write it."""
        headers = [(b"content-length", b"%d" % len(self.body)), *self.headers]
        if self.media_type is not None:
            headers.append((b"content-type", self.media_type))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@dataclass(slots=True)
class Stream:
    """An answer that goes on.

    Attributes:
        pieces: what is sent, as it comes. Closed when the client goes.
    """

    pieces: AsyncGenerator[bytes, None]
    media_type: bytes
    headers: Headers = field(default_factory=Headers)

    async def send(self, send: Send) -> None:
        """Write the head and then piece after piece; `send` waits while the client does not read.

        Raises:
            TimeoutError: it has not read for `STALLED_S`.
        """
        headers = [(b"content-type", self.media_type), *self.headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for piece in self.pieces:
            async with asyncio.timeout(STALLED_S):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Request:
    """What came in.

    Attributes:
        method: upper case.
        path: percent-decoded.
        raw_path: as it came.
        segments: the parts of the path between its slashes, each percent-decoded by itself: an id may hold a slash.
    """

    __slots__ = ("method", "path", "raw_path", "receive", "scope", "segments")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path = raw = str(scope["raw_path"], "latin-1")
        self.segments = raw.split("/") if "%" not in raw else [unquote(part) for part in raw.split("/")]

    def header(self, name: bytes) -> bytes | None:
        """The first header of a (lower-case) name."""
        for key, value in self.scope["headers"]:
            if key == name:
                return value
        return None

    def text_header(self, name: bytes) -> str | None:
        """The same as text."""
        value = self.header(name)
        return None if value is None else value.decode("latin-1")

    def abort(self) -> None:
        """Cut the connection at once; what is not sent yet is dropped. Nothing happens under a server that cannot."""
        abort = self.scope.get("state", {}).get(ABORT)
        if abort is not None:
            abort()

    async def gone(self) -> None:
        """Return when the client has closed the connection. Only once the body has been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
