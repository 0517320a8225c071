"""The application: from a request to its route, its validated call, its answer."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from types import TracebackType
from typing import Any, Final, Self

from agl_streams.errors import InvalidRequest, TooLarge
from agl_streams.server import (
    openapi,
    routes_attempts,
    routes_dead,
    routes_otlp,
    routes_resources,
    routes_rollouts,
    routes_service,
    routes_spans,
)
from agl_streams.server.asgi import Answer, ClientGone, Receive, Request, Scope, Send, Stream
from agl_streams.server.bodies import SMALL_BYTES, BodyBudget, BodyReader, check_containers, collected_later
from agl_streams.server.call import Call, Services
from agl_streams.server.events import EventHub
from agl_streams.server.faults import Fault, fault_of
from agl_streams.server.pruning import FEW_BYTES
from agl_streams.server.queue_tail import QueueTail
from agl_streams.server.table import Route, Table
from agl_streams.server.validation import read_body, validated, validated_query, without_nan
from agl_streams.store import StreamStore

BODIES_AT_ONCE: Final = 2
"""Bodies of the greatest size that one process holds at once; parsed, each takes several times its size."""

CONTRACT: Final[tuple[Route, ...]] = (
    *routes_service.HEALTH,
    *routes_rollouts.QUEUE,
    *routes_rollouts.ROLLOUTS,
    *routes_attempts.ATTEMPTS,
    *routes_resources.WORKERS,
    *routes_service.STATISTICS,
    *routes_attempts.ATTEMPT_READS,
    *routes_resources.RESOURCES,
    *routes_spans.SPANS,
    *routes_rollouts.WAITS,
    *routes_otlp.TRACES,
)
"""Agent-lightning's routes, in its order."""
EXTENSIONS: Final[tuple[Route, ...]] = (
    *routes_rollouts.ROLLOUT_EXTRAS,
    *routes_dead.DEAD,
    *routes_attempts.ATTEMPT_EXTRAS,
    *routes_spans.SPAN_EXTRAS,
    *routes_service.SERVICE_EXTRAS,
)


class ServerApp:
    """The ASGI application of one process. Used as an async context manager around serving."""

    def __init__(self, store: StreamStore) -> None:
        routes = (*CONTRACT, *EXTENSIONS)
        shards = [store.functions(shard).keys for shard in range(store.shards)]
        self.services = Services(
            store=store,
            queue=QueueTail(store.connection, [keys.tasks for keys in shards]),
            events=EventHub(store.connection, [keys.log for keys in shards]),
            draining=asyncio.Event(),
        )
        self._table = Table((*routes, *openapi.pages(routes, version("agl-streams"))))
        self._limit = store.settings.max_request_bytes
        self._budget = BodyBudget(self._limit * BODIES_AT_ONCE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.services.queue.close()
        await self.services.events.close()

    async def drain(self) -> None:
        """End what waits and streams; other calls go on."""
        self.services.draining.set()
        await self.services.events.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this application serves HTTP, not {scope['type']}")  # uvicorn closes the connection
        request = Request(scope, receive)
        reader = BodyReader(self._budget, self._limit)
        try:
            answer = await self._answer(request, reader)
            if isinstance(answer, Stream):
                await _stream(answer, request, send)
            else:
                await answer.send(send)
        except ClientGone:
            pass
        finally:
            reader.close()

    async def _answer(self, request: Request, reader: BodyReader) -> Answer | Stream:
        found = self._table.find(request.method, request.raw_path, request.segments)
        if found is None:
            return self._no_route(request)
        route, ids = found
        try:
            return await _handled(route, Call(request, self.services, reader, ids))
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001  whatever went wrong, the caller gets an answer and the log the rest
            return fault_of(error, request, self._limit).answer()

    def _no_route(self, request: Request) -> Answer:
        method = self._table.allowed(request.segments)
        if method is not None:
            return Fault(405, "Method Not Allowed", [(b"allow", method.encode())]).answer()
        if request.segments[-1] == "" and self._table.allowed(request.segments[:-1]) is not None:
            place: bytes = request.scope["raw_path"].rstrip(b"/")
            query: bytes = request.scope["query_string"]
            location = place + b"?" + query if query else place
            return Answer(b"", 307, media_type=None, headers=[(b"location", location)])
        return Fault(404, "Not Found").answer()


async def _handled(route: Route, call: Call) -> Answer | Stream:
    if route.query is not None:
        call.query = validated_query(route.query, call.request.scope["query_string"])
    value: Any = None
    if route.adapter is not None:
        data = await call.reader.read(call.request)
        check_containers(data)
        if len(data) <= SMALL_BYTES:
            value = _read(route, call, data)
        else:
            with collected_later():
                value = _read(route, call, data)
    try:
        result = await route.handler(call)
    except TooLarge:
        raise  # smaller it does not become
    except InvalidRequest:
        finite = without_nan(value) if route.nan_is_null else value
        if finite is value or route.adapter is None:
            raise
        # Nothing was stored, and this may be why: the contract stores null where JSON has no number.
        call.body = validated(route.adapter, finite, required=route.body_required)
        result = await route.handler(call)
    return Answer(result, route.status) if isinstance(result, bytes) else result


def _read(route: Route, call: Call, data: bytes) -> Any:
    """The value of a body, which is now validated as the call's."""
    value = read_body(data, call.request.text_header(b"content-type"))
    if route.prune is not None and len(data) > FEW_BYTES:
        route.prune(value)
    assert route.adapter
    call.body = validated(route.adapter, value, required=route.body_required)
    return value


async def _stream(answer: Stream, request: Request, send: Send) -> None:
    """Send a stream until it ends or the client goes, which its generator is told by being closed."""
    sending = asyncio.ensure_future(answer.send(send))
    watching = asyncio.create_task(request.gone())
    try:
        await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    except TimeoutError:
        request.abort()
        raise ClientGone from None
    finally:
        for task in (sending, watching):
            task.cancel()
        await asyncio.gather(sending, watching, return_exceptions=True)
        await answer.pieces.aclose()
