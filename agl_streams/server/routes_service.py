"""The service itself over HTTP: whether it is alive and ready, how much there is, and the log as it grows."""

from __future__ import annotations

from typing import Any, Final

from agl_streams.server import answers
from agl_streams.server.asgi import Answer, Stream
from agl_streams.server.bodies import Crowded
from agl_streams.server.call import Call, Draining
from agl_streams.server.cursor import Cursor
from agl_streams.server.events import Filter
from agl_streams.server.readiness import Readiness, readiness
from agl_streams.server.schemas import EventsQuery, Health
from agl_streams.server.sse import server_sent_events
from agl_streams.server.table import Route

MAX_TAILS: Final = 10_000
"""Tails of one process: each holds a connection, of which a process may have some tens of thousands."""


async def health(call: Call) -> bytes:
    """Say that the process is alive."""
    return b'{"status":"ok"}'


async def ready(call: Call) -> Answer:
    """Say whether the server can do its work."""
    if call.services.draining.is_set():
        raise Draining
    found = await readiness(call.store)
    return Answer(answers.plain(found), 200 if found.status == "ready" else 503)


async def statistics(call: Call) -> bytes:
    """Count what there is."""
    return answers.plain(await call.store.statistics())


async def settle(call: Call) -> bytes:
    """Fold all shards up to their present end."""
    await call.store.settle()
    return b'{"settled":true}'


async def events(call: Call) -> Stream:
    """Follow the log."""
    query: EventsQuery = call.query
    hub, shards = call.services.events, call.store.shards
    # A browser that reconnects asks the same URL again: where it was stands in the header, and that counts.
    place = call.request.text_header(b"last-event-id") or query.after
    after = Cursor.parse(place, shards) if place else None
    if call.services.draining.is_set():
        raise Draining
    if hub.tails >= MAX_TAILS:
        raise Crowded(f"this process serves {MAX_TAILS} tails already; try again later")
    wanted = Filter(_set(query.type), _set(query.rollout_id))
    headers = [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]  # nginx would hold events back
    return Stream(server_sent_events(hub, wanted, after), b"text/event-stream", headers)


def _set(values: list[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)


HEALTH: Final = (
    Route(
        method="GET", path="/v1/agl/health", handler=health, tag="service", summary="The process is alive",
        answer=Health,
    ),
)  # fmt: skip
STATISTICS: Final = (
    Route(
        method="GET", path="/v1/agl/statistics", handler=statistics, tag="service",
        summary="How much there is, at this moment", answer=dict[str, Any],
    ),
)  # fmt: skip
SERVICE_EXTRAS: Final = (
    Route(
        method="GET", path="/health", handler=health, tag="service", summary="The process is alive", answer=Health,
        ours=True,
    ),
    Route(
        method="GET", path="/ready", handler=ready, tag="service",
        summary="The store answers and the aggregator keeps up; otherwise status 503", answer=Readiness, ours=True,
    ),
    Route(
        method="POST", path="/v1/agl/settle", handler=settle, tag="service",
        summary="Fold the log up to its present end, so that sums include everything written before",
        answer=dict[str, bool], ours=True,
    ),
    Route(
        method="GET", path="/v1/agl/events", handler=events, tag="events",
        summary="The log of all shards as server-sent events; resume with Last-Event-ID", query=EventsQuery,
        ours=True,
    ),
)  # fmt: skip
