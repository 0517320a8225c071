"""Chapter 11: the same store over HTTP, for programs in other languages and on other machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest

from agl_streams import StreamStore
from tests.server.conftest import serving
from tests.server.support import next_events, sent_events


@pytest.fixture
async def http(store: StreamStore) -> AsyncGenerator[aiohttp.ClientSession]:
    """A plain HTTP client of a server on the store's namespace."""
    async with serving(store.settings) as url, aiohttp.ClientSession(url) as session:
        yield session


async def post(http: aiohttp.ClientSession, path: str, body: Any) -> Any:
    """POST JSON under ``/v1/agl``; the answer as JSON."""
    async with http.post(f"/v1/agl/{path}", json=body) as response:
        assert response.ok, await response.text()
        return await response.json()


async def test_a_rollout_goes_through_the_queue_over_http(store: StreamStore, http: aiohttp.ClientSession) -> None:
    """What is enqueued over HTTP is taken and finished over HTTP, and is the same rollout for everybody."""
    (queued,) = await post(http, "queues/rollouts/enqueue", {"rollouts": [{"input": "task"}]})
    (taken,) = await post(http, "queues/rollouts/dequeue", {"worker_id": "worker-1"})
    attempt = f"rollouts/{taken['rollout_id']}/attempts/{taken['attempt']['attempt_id']}"
    await post(http, attempt, {"status": "succeeded"})

    assert taken["rollout_id"] == queued["rollout_id"]
    finished = await store.get_rollout_by_id(queued["rollout_id"])
    assert finished is not None
    assert finished.status == "succeeded"


async def test_waiting_over_http_is_pushed_too(store: StreamStore, http: aiohttp.ClientSession) -> None:
    """A wait is one request that is answered when its rollout finishes."""
    rollout = await store.enqueue_rollout("task")
    body = {"rollout_ids": [rollout.rollout_id], "timeout": 60.0}
    waiting = asyncio.create_task(post(http, "waits/rollouts", body))

    await store.cancel_rollout(rollout.rollout_id, "not needed any more")

    assert [one["status"] for one in await waiting] == ["cancelled"]


async def test_the_log_is_followed_over_http(store: StreamStore, http: aiohttp.ClientSession) -> None:
    """Events come as server-sent events while they are written, from any place in the log."""
    rollout = await store.enqueue_rollout("before")
    async with http.get("/v1/agl/events", params={"rollout_id": rollout.rollout_id, "after": "0"}) as response:
        stream = sent_events(response)
        (first,) = await next_events(stream, 1)
        await store.dequeue_rollout()
        (second,) = await next_events(stream, 1)

    assert [sent.data["type"] for sent in (first, second)] == ["rollout_enqueued", "attempt_started"]


async def test_an_error_over_http_says_what_is_wrong(http: aiohttp.ClientSession) -> None:
    """Bad input is a 4xx whose text names the field, as the store's own error does."""
    body = {"rollouts": [{"input": "task", "config": {"max_attempts": 0}}]}
    async with http.post("/v1/agl/queues/rollouts/enqueue", json=body) as response:
        answer = await response.text()

    assert 400 <= response.status < 500
    assert "max_attempts" in answer
