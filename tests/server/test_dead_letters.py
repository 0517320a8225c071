"""Dead letters over HTTP: the same list and the same deeds as beside the engine."""

from __future__ import annotations

import pytest

from agl_streams.client import StoreClient
from agl_streams.config import Settings
from agl_streams.errors import Conflict, InvalidRequest, NotFound
from agl_streams.store import StreamStore


async def give_up(store: StreamStore, *rollout_ids: str) -> None:
    """Rollouts are handed over and not begun, when no second delivery is allowed."""
    for rollout_id in rollout_ids:
        await store.enqueue_rollout({"of": rollout_id}, rollout_id=rollout_id)
    functions = store.functions(0)
    await store.connection.execute("XREADGROUP", "GROUP", "runners", "reader", "STREAMS", functions.keys.tasks, ">")
    await functions.expire("30000000", 0, 1)
    await functions.leave("reader")


async def test_letters_are_the_same_over_http(server_url: str, settings: Settings, store: StreamStore) -> None:
    """List, page and single letter are what the store says; what is none is null."""
    await give_up(store, "a", "b", "c")
    async with StoreClient(server_url, settings) as client:
        assert await client.query_dead_letters() == await store.query_dead_letters()
        assert await client.query_dead_letters(limit=1, offset=1) == await store.query_dead_letters(limit=1, offset=1)
        assert await client.get_dead_letter("b") == await store.get_dead_letter("b")
        assert await client.get_dead_letter("nobody") is None
        with pytest.raises(InvalidRequest):
            await client.query_dead_letters(limit=0)


async def test_letters_are_dealt_with_over_http(server_url: str, settings: Settings, store: StreamStore) -> None:
    """A repeat with the same key gets the first answer; a second deed and an unknown rollout are refused."""
    await give_up(store, "a", "b")
    async with StoreClient(server_url, settings) as client:
        first = await client.requeue_dead_letter("a", request_key="k")
        assert first.status == "requeuing"
        assert await client.requeue_dead_letter("a", request_key="k") == first
        with pytest.raises(Conflict):
            await client.requeue_dead_letter("a")
        assert (await client.drop_dead_letter("b")).status == "failed"
        with pytest.raises(Conflict):
            await client.drop_dead_letter("b")
        with pytest.raises(NotFound):
            await client.drop_dead_letter("nobody")
        assert (await client.query_dead_letters()).total == 0
