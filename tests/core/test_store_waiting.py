"""Waiting for rollouts: who is told of what, and when."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from agl_streams.config import Settings
from agl_streams.errors import InvalidRequest, StoreUnavailable
from agl_streams.store import StreamStore
from tests.support.chaos_operator import FUTURE
from tests.support.servers import Servers
from tests.support.waiting import turns, until

LONG_S = 20.0


async def finished(store: StreamStore, *rollout_ids: str) -> None:
    """These rollouts, from nothing to their end."""
    for rollout_id in rollout_ids:
        await store.enqueue_rollout("x", rollout_id=rollout_id)
        await store.start_attempt(rollout_id)
        await store.update_attempt(rollout_id, "latest", "succeeded")


async def wait(store: StreamStore, *rollout_ids: str, timeout: float | None) -> list[str]:
    """The ids of those that are finished by then."""
    found = await store.wait_for_rollouts(rollout_ids=rollout_ids, timeout=timeout)
    return [rollout.rollout_id for rollout in found]


@pytest.mark.parametrize("timeout", [0, -1.0])
async def test_a_timeout_of_nothing_looks_once(store: StreamStore, timeout: float) -> None:
    """What is finished, in the order asked, doubles included; unfinished and unknown ones are left out."""
    await finished(store, "a", "b")
    await store.enqueue_rollout("x", rollout_id="open")
    assert await wait(store, "b", "open", "nobody", "a", "b", "odd id", timeout=timeout) == ["b", "a", "b"]


async def test_the_end_of_a_timeout_gives_what_is_finished(store: StreamStore) -> None:
    """The rest is left out."""
    await finished(store, "a")
    await store.enqueue_rollout("x", rollout_id="open")
    assert await wait(store, "open", "a", timeout=0.05) == ["a"]


async def test_unknown_ids_are_not_waited_for(store: StreamStore) -> None:
    """Without a timeout, too."""
    assert await wait(store, "nobody", "odd id", timeout=None) == []
    await finished(store, "a")
    assert await wait(store, "nobody", "a", timeout=None) == ["a"]
    assert await wait(store, timeout=None) == []


async def test_a_waiter_wakes_when_all_are_finished(store: StreamStore, settings: Settings) -> None:
    """By whatever process, and however they end."""
    ids = ["succeeded", "failed", "cancelled", "updated"]
    for rollout_id in ids:
        await store.enqueue_rollout("x", rollout_id=rollout_id)
    waiting = asyncio.create_task(wait(store, *ids, timeout=None))
    async with await StreamStore.connect(settings=settings) as other:
        for rollout_id in ids[:2]:
            await other.start_attempt(rollout_id)
        await other.update_attempt("succeeded", "latest", "succeeded")
        await other.update_attempt("failed", "latest", "failed")
        await other.cancel_rollout("cancelled", "no")
        await turns(10)
        assert not waiting.done()
        await other.update_rollout("updated", status="succeeded")
        assert await asyncio.wait_for(waiting, LONG_S) == ids


async def test_no_completion_is_missed_between_looking_and_waiting(store: StreamStore) -> None:
    """Rollouts that finish while their waiters are starting wake them."""
    ids = [f"r{number}" for number in range(30)]
    for rollout_id in ids:
        await store.enqueue_rollout("x", rollout_id=rollout_id)
    waiters = [asyncio.create_task(wait(store, rollout_id, timeout=None)) for rollout_id in ids]
    for number, rollout_id in enumerate(ids):
        await turns(number % 3)
        await store.update_rollout(rollout_id, status="succeeded")
    assert await asyncio.wait_for(asyncio.gather(*waiters), LONG_S) == [[rollout_id] for rollout_id in ids]


async def test_many_waiters_share_one_blocked_read(store: StreamStore) -> None:
    """The server sees one blocked client, however many wait."""
    await store.enqueue_rollout("x", rollout_id="r")
    waiters = [asyncio.create_task(wait(store, "r", timeout=None)) for _ in range(200)]
    info = await until(lambda: _blocked(store), what="a blocked read")
    assert info == 1
    await store.cancel_rollout("r", "enough")
    assert await asyncio.wait_for(asyncio.gather(*waiters), LONG_S) == [["r"]] * 200


async def test_a_finished_rollout_that_reopens_is_waited_for_again(store: StreamStore) -> None:
    """It is open until it finishes once more."""
    await finished(store, "a")
    await store.start_attempt("a")
    assert await wait(store, "a", timeout=0) == []
    waiting = asyncio.create_task(wait(store, "a", timeout=None))
    await turns(20)
    await store.update_attempt("a", "latest", "failed")
    assert await asyncio.wait_for(waiting, LONG_S) == ["a"]


async def test_closing_the_store_ends_the_waiting(settings: Settings) -> None:
    """The waiter is told."""
    store = await StreamStore.connect(settings=settings)
    await store.enqueue_rollout("x", rollout_id="r")
    waiting = asyncio.create_task(wait(store, "r", timeout=None))
    await until(lambda: _blocked(store), what="a blocked read")
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await waiting


async def test_a_waiter_that_gives_up_is_forgotten(store: StreamStore) -> None:
    """Its cancellation disturbs nobody else."""
    await store.enqueue_rollout("x", rollout_id="r")
    first, second = (asyncio.create_task(wait(store, "r", timeout=None)) for _ in range(2))
    await until(lambda: _blocked(store), what="a blocked read")
    first.cancel()
    await store.cancel_rollout("r", "enough")
    assert await asyncio.wait_for(second, LONG_S) == ["r"]
    assert first.cancelled()


async def test_a_timeout_that_is_no_number_is_refused(store: StreamStore) -> None:
    """NaN seconds are no time."""
    with pytest.raises(InvalidRequest, match="timeout"):
        await wait(store, "r", timeout=float("nan"))


async def _blocked(store: StreamStore) -> int:
    info = await store.connection.execute("INFO", "clients")
    assert isinstance(info, bytes)
    return int(info.split(b"blocked_clients:")[1].split()[0])


async def test_a_waiter_hears_of_ends_behind_a_greater_id(servers: Servers, settings: Settings) -> None:
    """Entries of a server that took over, with a clock behind that of the one before, are heard although ids shrink."""
    server = servers.start()

    def blocked() -> bool:
        return b"blocked_clients:1" in cast("bytes", server.execute("INFO", "clients"))

    async with await StreamStore.connect(server.url, settings=settings) as store:
        await store.enqueue_rollout("x", rollout_id="a")
        waiting = asyncio.create_task(wait(store, "a", timeout=None))
        await until(blocked)
        stream = store.functions(0).keys.finished
        server.execute("XADD", stream, f"{FUTURE}-0", "hello", "world")
        await until(blocked, what="the reader to have read it")
        server.execute("DEL", stream)
        server.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(blocked, what="the reader to be back")
        await store.update_rollout("a", status="cancelled")
        assert await waiting == ["a"]
