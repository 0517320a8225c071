"""Reading request bodies within bounds: of one request, and of all that are being read or worked on at once."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from typing import Final

from agl_streams.errors import InvalidRequest
from agl_streams.server.asgi import ClientGone, Request

SMALL_BYTES: Final = 256 * 1024
"""Bodies up to this size are not counted: thousands of them fit into memory."""
MAX_CONTAINERS: Final = 2_000_000
"""Lists and objects in one JSON body. A parser makes ten million of them in a second, in which nobody else is served;
spans and rollouts of ordinary size need a body above the limit of a request for as many."""


class TooLong(Exception):
    """The body is above the limit of a request. Status 413."""


class Crowded(Exception):
    """This process has no room for the request now. Status 503: later there is some again."""


class BodyBudget:
    """How many bytes of large bodies this process holds, and may hold, at once."""

    def __init__(self, total_bytes: int) -> None:
        self._free = total_bytes

    def take(self, count: int) -> None:
        """Reserve.

        Raises:
            Crowded: there is not so much left.
        """
        if count > self._free:
            raise Crowded("the server holds as many large requests as it may; try again")
        self._free -= count

    def give_back(self, count: int) -> None:
        """End a reservation."""
        self._free += count


class BodyReader:
    """Reads one request's body. What it reserved is given back by `close`.

    A body that trickles is cut off by the connection (see ``protocol``), which ends the read with `ClientGone`.
    """

    def __init__(self, budget: BodyBudget, limit_bytes: int) -> None:
        self._budget = budget
        self._limit = limit_bytes
        self._reserved = 0

    async def read(self, request: Request) -> bytes:
        """The whole body.

        Raises:
            TooLong: it is, or says that it will be, above the limit; then it is not read on.
            Crowded: there is no room for it now.
            ClientGone: the client went away in the middle.
        """
        self._check(int(request.header(b"content-length") or 0))  # before the client is told to go on
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            self._check(len(body))
            return body
        parts, size = [body], len(body)
        while message.get("more_body", False):
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body = message.get("body", b"")
            parts.append(body)
            size += len(body)
            self._check(size)
        return b"".join(parts)

    def grow(self, size: int) -> None:
        """The body has become ``size`` bytes by being decompressed. Errors as in `read`."""
        self._check(size)

    def close(self) -> None:
        """The body is no longer needed."""
        self._budget.give_back(self._reserved)
        self._reserved = 0

    def _check(self, size: int) -> None:
        """Raise if the body may not become this large; reserve what it needs beyond what it has."""
        if size > self._limit:
            raise TooLong
        if size > SMALL_BYTES and size > self._reserved:
            self._budget.take(size - self._reserved)
            self._reserved = size


def check_containers(data: bytes) -> None:
    """Refuse a JSON body whose size is in its brackets, before it is parsed. Those in strings count as well.

    Raises:
        InvalidRequest: it has more than `MAX_CONTAINERS`.
    """
    if len(data) > MAX_CONTAINERS and data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise InvalidRequest(f"a body has at most {MAX_CONTAINERS:,} lists and objects; send it in parts")


@contextlib.contextmanager
def collected_later() -> Generator[None]:
    """Make many objects of a large body without looking for cycles among them: there are none.

    The collector would look at all of them again and again while they become more, which takes several times as long as
    making them.
    """
    gc.disable()
    try:
        yield
    finally:
        # Freeze and unfreeze put what is new among the old, unseen: it goes by its reference counts.
        gc.freeze()
        gc.unfreeze()
        gc.enable()
