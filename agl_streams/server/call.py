"""What a handler gets: the validated call, and what this process has for all calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from agl_streams.server.asgi import ClientGone, Request
from agl_streams.store import StreamStore

if TYPE_CHECKING:
    from agl_streams.server.bodies import BodyReader
    from agl_streams.server.events import EventHub
    from agl_streams.server.queue_tail import QueueTail

T = TypeVar("T")

REQUEST_KEY = b"idempotency-key"
REPEATED = b"idempotency-repeat"


class Draining(Exception):
    """The server is stopping and cannot let this call wait on. Status 503: another process answers it."""


@dataclass(slots=True)
class Services:
    """What calls share in one process.

    Attributes:
        draining: set when the process is to stop: whoever waits or streams ends.
    """

    store: StreamStore
    queue: QueueTail
    events: EventHub
    draining: asyncio.Event


@dataclass(slots=True)
class Call:
    """One request on its way through a handler.

    Attributes:
        ids: the path parameters in order.
        query, body: of the types that the route says.
        reader: for handlers that read the body by themselves.
    """

    request: Request
    services: Services
    reader: BodyReader
    ids: list[str]
    query: Any = None
    body: Any = None

    @property
    def store(self) -> StreamStore:
        """The store of this process."""
        return self.services.store

    @property
    def request_key(self) -> str | None:
        """The caller's key of this request, the same on its repeats; see ``agl_streams.store.repeats``."""
        return self.request.text_header(REQUEST_KEY)

    @property
    def repeated(self) -> bool:
        """Whether the caller says that this may not be the first try."""
        return self.request.header(REPEATED) is not None

    async def while_connected(self, work: Awaitable[T]) -> T:
        """The result of something that may take long, which ends when the client goes or the server stops.

        Raises:
            ClientGone, Draining: it was cut off.
        """
        working = asyncio.ensure_future(work)
        watching = asyncio.create_task(self.request.gone())
        draining = asyncio.create_task(self.services.draining.wait())
        try:
            await asyncio.wait({working, watching, draining}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise ClientGone if watching.done() else Draining
        finally:
            for task in (working, watching, draining):
                task.cancel()
            await asyncio.gather(working, watching, draining, return_exceptions=True)
