"""The log as server-sent events: ``GET /v1/agl/events``.

Each event's ``id`` is a cursor over all shards: a client that comes back with it (``Last-Event-ID``, as browsers do,
or ``after``) goes on where it was, at any server process. Two messages have a name of their own, and the stream ends
behind them: ``fell_behind`` to a reader that was too slow, ``closing`` when the server stops. Both carry the cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final

from agl_streams.server.answers import plain
from agl_streams.server.cursor import Cursor
from agl_streams.server.events import EventHub, FellBehind, Filter, Placed, Tail

IDLE_S: Final = 15.0
"""Between signs of life: below the idle time-outs of common proxies (60 s), and it moves the reader's cursor on."""
PIECE_BYTES: Final = 64 * 1024
RETRY_MS: Final = 1000
"""When a browser that lost the connection tries again."""


async def server_sent_events(hub: EventHub, wanted: Filter, after: Cursor | None) -> AsyncGenerator[bytes, None]:
    """What is sent to one reader. ``after`` None: from now on."""
    tail = await hub.join(wanted)
    try:
        yield b"retry: %d\n%b" % (RETRY_MS, _sign_of_life(after or tail.cursor))
        if after is not None:
            async for page in hub.catch_up(tail, after):
                for piece in _pieces(page):
                    yield piece
        woken = True
        while not hub.closing:
            news = hub.read(tail)
            for piece in _pieces(news):
                yield piece
            if not news and not woken:
                yield _sign_of_life(tail.cursor)
            woken = await _woken(tail)
        yield _farewell(b"closing", tail.cursor)
    except FellBehind:
        yield _farewell(b"fell_behind", tail.cursor)
    finally:
        await hub.leave(tail)


def _pieces(events: list[Placed]) -> Iterator[bytes]:
    """What is written in one go: many small events, few large ones."""
    piece: list[bytes] = []
    size = 0
    for placed in events:
        piece.append(placed.rendered)
        size += len(placed.rendered)
        if size > PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)


def _sign_of_life(cursor: Cursor) -> bytes:
    """A message without data: readers do not see it, but remember its id."""
    return b": alive\nid: %b\n\n" % str(cursor).encode()


def _farewell(name: bytes, cursor: Cursor) -> bytes:
    text = str(cursor)
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name, text.encode(), plain({"resume": text}))


async def _woken(tail: Tail) -> bool:
    try:
        async with asyncio.timeout(IDLE_S):
            return await tail.woken.wait()
    except TimeoutError:
        return False
