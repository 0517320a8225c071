"""What becomes of requests of agentlightning's client whose answer is lost: it sends most again, without a key."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from agentlightning import LightningStoreClient
from agentlightning.types import Span
from aiohttp import web

from tests.conformance.conftest import OurServer

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def losing(url: str) -> AsyncGenerator[LightningStoreClient]:
    """A client of a server whose every POST is carried out and loses its answer the first time it is sent."""
    lost: set[tuple[str, bytes]] = set()
    async with aiohttp.ClientSession(url) as session:

        async def relay(request: web.Request) -> web.Response:
            body = await request.read()
            headers = {"content-type": request.headers.get("content-type", "application/json")}
            async with session.request(request.method, request.raw_path, data=body, headers=headers) as answer:
                content, kind, status = await answer.read(), answer.content_type, answer.status
            sent = (request.raw_path, body)
            if request.method == "POST" and sent not in lost:
                lost.add(sent)
                assert request.transport is not None
                request.transport.abort()
            return web.Response(body=content, status=status, content_type=kind)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = LightningStoreClient(
            f"http://127.0.0.1:{runner.addresses[0][1]}", retry_delays=(0.01,), health_retry_delays=(0.01,)
        )
        try:
            yield client
        finally:
            await client.close()
            await runner.cleanup()


async def test_what_makes_something_new_may_make_it_twice(our_server: OurServer) -> None:
    """An enqueue, a start, a further attempt and new resources are made twice, and the documentation says so."""
    async with losing(our_server.url) as client:
        await client.enqueue_rollout("queued")
        started = await client.start_rollout("started")
        again = await client.start_attempt(started.rollout_id)
        await client.add_resources({})
        counted = await client.statistics()
    assert (counted["total_rollouts"], counted["total_resources"], again.attempt.sequence_id) == (4, 2, 3)
    text = " ".join((ROOT / "docs/protocol.md").read_text().split())
    assert "its repeat enqueues a second rollout, and so for a start, a further attempt and new resources" in text


async def test_what_names_its_thing_is_done_once(our_server: OurServer) -> None:
    """A span and a report are stored as if no answer had been lost."""
    plain = LightningStoreClient(our_server.url)
    started = await plain.start_rollout("started", worker_id="w")
    ids = (started.rollout_id, started.attempt.attempt_id)
    span = Span.from_attributes(attributes={}, rollout_id=ids[0], attempt_id=ids[1], sequence_id=1)
    async with losing(our_server.url) as client:
        await client.add_span(span)
        await client.update_attempt(*ids, status="succeeded")
    assert [one.span_id for one in await plain.query_spans(ids[0])] == [span.span_id]
    (attempt,) = await plain.query_attempts(ids[0])
    assert attempt.status == "succeeded"
    await plain.close()


async def test_a_lost_dequeue_is_not_repeated(our_server: OurServer) -> None:
    """The client takes it for an empty queue; the rollout is held, and comes back as its rules say."""
    plain = LightningStoreClient(our_server.url)
    queued = await plain.enqueue_rollout("queued")
    async with losing(our_server.url) as client:
        assert await client.dequeue_rollout() is None
    held = await plain.get_rollout_by_id(queued.rollout_id)
    assert held is not None
    assert held.status == "preparing"
    assert await plain.dequeue_rollout() is None
    await plain.close()
