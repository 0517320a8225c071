"""A server that loses the functions or everything while it is used, and two builds of the functions side by side."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from agl_streams.consumer import RolloutConsumer
from agl_streams.library import build, library, lua_files
from agl_streams.replay import rebuild
from agl_streams.store import StreamStore
from tests.support.rebuild import assert_equal_content, durable_content
from tests.support.scenario import Scenario
from tests.support.servers import Servers
from tests.support.spans import reward
from tests.support.waiting import until


@pytest.mark.leaves_pending
@pytest.mark.parametrize("flush", [("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH")], ids=" ".join)
async def test_lost_functions_are_loaded_again(store: StreamStore, flush: tuple[str, str]) -> None:
    """Every step of a history succeeds when the functions were flushed before it."""
    scenario = Scenario()
    scenario.use_clock(store)
    for step in scenario.steps():
        await store.connection.execute(*flush)
        await step(store)
    assert (await store.query_rollouts(status_in=["succeeded"])).total == 1


async def test_functions_are_loaded_again_for_a_read(store: StreamStore) -> None:
    """A read, too, meets a server without functions."""
    rollout = await store.enqueue_rollout("x")
    await store.connection.execute("FUNCTION", "FLUSH")
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout


async def test_a_flushed_server_is_a_new_beginning(servers: Servers) -> None:
    """After FLUSHALL the namespace and its groups are made again, from the start of the queue; nothing crashes."""
    server = servers.start()
    async with await StreamStore.connect(server.url) as store:
        old = await store.enqueue_rollout("old")
        server.execute("FLUSHALL")
        assert await store.get_rollout_by_id(old.rollout_id) is None
        assert await store.dequeue_rollout() is None
        server.execute("FLUSHALL")
        new = await store.enqueue_rollout("new")
        taken = await store.dequeue_rollout("w")
        assert taken is not None
        assert taken.rollout_id == new.rollout_id
        await store.add_span(reward(1, 1.0, rollout_id=new.rollout_id, attempt_id=taken.attempt.attempt_id))
        await store.settle()
        assert (await store.rollout_sums(new.rollout_id)).rewards == 1


async def test_whoever_waits_lives_through_a_flush(servers: Servers) -> None:
    """A blocked runner and a waiter are served after FLUSHALL by what is enqueued and finished then."""
    server = servers.start()
    async with await StreamStore.connect(server.url) as store:
        consumer = RolloutConsumer(store, "w")
        before = await store.enqueue_rollout("before")
        waiter = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[before.rollout_id], timeout=20))
        first = await consumer.next(1)
        assert len(first) == 1
        reading = asyncio.create_task(take_one(consumer))
        await until(lambda: "blocked_clients:2" in str(server.execute("INFO", "clients")), what="both to be blocked")
        server.execute("FLUSHALL")
        after = await store.enqueue_rollout("after", rollout_id=before.rollout_id)
        assert await reading == [after.rollout_id]
        await store.update_attempt(after.rollout_id, "latest", "succeeded")
        assert [rollout.input for rollout in await waiter] == ["after"]
        await consumer.close()


async def take_one(consumer: RolloutConsumer) -> list[str]:
    """Asks until there is something."""
    while True:
        begun = await consumer.next(1)
        if begun:
            return [rollout.rollout_id for rollout in begun]


@pytest.mark.leaves_pending
async def test_two_builds_of_the_functions_serve_one_namespace(store: StreamStore, redis_url: str) -> None:
    """Two releases that write one schema live side by side on a server, each with its own names, and take turns."""
    sources = lua_files()
    other = build({**sources, "zz_comment.lua": "-- another release\n"})
    assert other.name != library().name
    scenario = Scenario()
    scenario.use_clock(store)
    builds = [other, library()]
    for number, step in enumerate(scenario.steps()):
        store.functions(0).use(builds[number % 2])
        if number < len(builds):
            await store.functions(0).load()
        await step(store)
    listed = await store.connection.execute("FUNCTION", "LIST")
    assert {one.name.encode() for one in builds} <= set(names_in(listed))
    plain_settings = store.settings.model_copy(update={"namespace": f"{store.settings.namespace}-rebuilt"})
    async with await StreamStore.connect(redis_url, settings=plain_settings) as target:
        await rebuild(store, target)
    contents = [durable_content(redis_url, one.settings.namespace) for one in (store, target)]
    assert_equal_content(contents[0], contents[1], ("written by two", "rebuilt by one"))


def names_in(listed: object) -> list[bytes]:
    """The names of the libraries in a reply of FUNCTION LIST."""
    entries = cast("list[list[bytes]]", listed)
    return [entry[entry.index(b"library_name") + 1] for entry in entries]
