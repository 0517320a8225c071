"""A dequeue that says nothing of waiting is held for a moment: a poller meets the work that is about to come."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.support import Api, Reply
from tests.support.raw import ask
from tests.support.waiting import until

DEQUEUE = "queues/rollouts/dequeue"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A hold that outlasts every test."""
    return settings.model_copy(update={"dequeue_wait_seconds": 20.0})


async def held(api: Api, store: StreamStore, body: object = None) -> asyncio.Task[Reply]:
    """A dequeue at an empty queue, which the server holds."""

    def waited_for() -> bool:
        return b"blocked_clients:1" in ask(store.url, "INFO", "clients")

    asking = asyncio.create_task(api.post(DEQUEUE, body))
    await until(waited_for, what="the server to wait for work")
    return asking


@pytest.mark.parametrize("body", [None, {"limit": 3, "worker_id": "w"}, {"wait": None}])
async def test_a_plain_dequeue_gets_what_comes_shortly_after(api: Api, store: StreamStore, body: object) -> None:
    """A dequeue that names no wait, with or without a body, is answered with the rollout that is enqueued next."""
    asking = await held(api, store, body)
    queued = await store.enqueue_rollout(1)
    reply = await asking
    assert [one["rollout_id"] for one in reply.json] == [queued.rollout_id]


async def test_who_says_that_he_does_not_wait_is_not_held(api: Api, store: StreamStore) -> None:
    """With a wait of zero the answer of an empty queue comes before that of a dequeue which is held."""
    asking = await held(api, store)
    assert (await api.post(DEQUEUE, {"wait": 0})).json == []
    assert not asking.done()
    await store.enqueue_rollout(1)
    assert len((await asking).json) == 1


async def test_a_hold_ends_as_an_empty_queue(settings: Settings, store: StreamStore) -> None:
    """When its time is over, or the server stops, a held dequeue is answered as at an empty queue: with no fault."""
    async with contextlib.AsyncExitStack() as server:
        url = await server.enter_async_context(serving(settings))
        async with aiohttp.ClientSession(url) as session:
            asking = await held(Api(session), store)
            await server.aclose()
            reply = await asking
    assert (reply.status, reply.json) == (200, [])
    brief = settings.model_copy(update={"dequeue_wait_seconds": 0.01})
    async with serving(brief) as url, aiohttp.ClientSession(url) as session:
        assert (await Api(session).post(DEQUEUE)).json == []


async def test_a_held_caller_that_goes_takes_nothing_with_it(api: Api, store: StreamStore) -> None:
    """A rollout that comes when the held caller has gone is there for the next, in its first attempt."""
    asking = await held(api, store)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    other = await held(api, store)
    await store.enqueue_rollout(1)
    (taken,) = (await other).json
    assert taken["attempt"]["sequence_id"] == 1
