"""The ASGI types that the proxy uses, and the one way it reads a request's body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from agl_streams.errors import InvalidRequest, TooLarge

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]


def header(headers: Headers, name: bytes) -> bytes:
    """The first value of a header, ``b""`` when it is absent.

    Args:
        name: lower case, as ASGI servers deliver names.
    """
    return next((value for key, value in headers if key == name), b"")


async def read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    """The whole body of a request.

    Raises:
        TooLarge: it is longer than ``max_bytes``; a declared length is refused before a byte is read.
        InvalidRequest: the client hung up before it was sent.
    """
    declared = header(scope["headers"], b"content-length")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(int(declared), max_bytes)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client hung up before its request was complete")
        piece = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(size, max_bytes)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives a body that was already read (and perhaps changed), then what the server gives."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _too_large(size: int, max_bytes: int) -> TooLarge:
    return TooLarge(
        f"the request body has at least {size:,} bytes, the limit is {max_bytes:,}; raise AGL_MAX_REQUEST_BYTES"
    )
