"""A store in another process, thread or event loop: it works there, or says why not and what to do."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from agl_streams.client import StoreClient
from agl_streams.config import Settings, child_environment, load_settings
from agl_streams.connection import RedisConnection
from agl_streams.consumer import RolloutConsumer
from agl_streams.errors import AuthenticationFailed, Upgrade, WrongLoop, WrongShardCount
from agl_streams.late import LateConnection
from agl_streams.library import SCHEMA
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.support.processes import ProcessGroup
from tests.support.raw import ask
from tests.support.servers import Servers
from tests.support.spans import reward

PASSWORD = "a/secret"
METHODS = ["spawn", "fork", "forkserver"]


def copy_of(store: StreamStore) -> StreamStore:
    """What comes out of the pickle of a store."""
    copy: StreamStore = pickle.loads(pickle.dumps(store))
    return copy


async def travel(processes: ProcessGroup, method: str, url: str, settings: Settings) -> str:
    """Run the program that sends a store to another process; what it printed."""
    travellers = processes.module("tests.core.store_travellers", method, url, env=child_environment(settings))
    status = await asyncio.to_thread(travellers.wait)
    assert status == 0, travellers.output
    return travellers.output


@pytest.mark.parametrize("method", METHODS)
async def test_a_pickled_store_works_in_another_process(
    settings: Settings, redis_url: str, processes: ProcessGroup, method: str
) -> None:
    """However the process was started, while the store here waits for something; both go on."""
    output = await travel(processes, method, redis_url, settings)
    assert "child ended with 0\n" in output
    assert "made by another process: True, succeeded\n" in output
    assert "the store here goes on\n" in output


@pytest.mark.parametrize("method", METHODS)
async def test_a_pickled_client_works_in_another_process(
    settings: Settings, processes: ProcessGroup, method: str
) -> None:
    """The same for a store behind a server."""
    async with serving(settings) as url:
        output = await travel(processes, method, url, settings)
    assert "child ended with 0\n" in output
    assert "made by another process: True, succeeded\n" in output
    assert "the store here goes on\n" in output


async def test_a_store_that_a_fork_inherits_is_refused_there(
    settings: Settings, redis_url: str, processes: ProcessGroup
) -> None:
    """Its sockets are the parent's: the error says so, and what to do instead."""
    output = await travel(processes, "fork", redis_url, settings)
    assert "is used in its fork" in output
    assert "Open one in each process and event loop" in output


async def test_another_threads_loop_is_refused_a_store_and_given_a_copy(store: StreamStore) -> None:
    """The store itself says that it belongs to another loop; a pickle of it serves."""
    travelling = pickle.dumps(store)

    async def elsewhere() -> str:
        with pytest.raises(WrongLoop, match="opened in another event loop"):
            await store.enqueue_rollout("not here")
        copy: StreamStore = pickle.loads(travelling)
        async with copy:
            return (await copy.enqueue_rollout("here")).rollout_id

    made = await asyncio.to_thread(asyncio.run, elsewhere())
    assert [one.rollout_id for one in await store.query_rollouts()] == [made]


async def test_a_copy_belongs_to_the_loop_that_used_it_first(store: StreamStore) -> None:
    """From then on it is refused to others, as any store is."""

    async def elsewhere(copy: StreamStore) -> None:
        with pytest.raises(WrongLoop, match="Open one in each process and event loop"):
            await copy.enqueue_rollout("second")

    async with copy_of(store) as copy:
        await copy.enqueue_rollout("first")
        await asyncio.to_thread(asyncio.run, elsewhere(copy))
        assert [one.input for one in await copy.query_rollouts()] == ["first"]


async def test_a_copy_is_made_of_address_and_settings(redis_url: str, settings: Settings) -> None:
    """Namespace, shards and limits travel; nothing of the environment there comes in their place."""
    chosen = settings.model_copy(update={"shards": 3, "lease_seconds": 7.0, "max_input_bytes": 1000})
    async with await StreamStore.connect(redis_url, settings=chosen) as store:
        await store.enqueue_rollout("x", rollout_id="r")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AGL_NAMESPACE", "another")
            environment.setenv("AGL_REDIS_URL", "redis://nowhere.invalid")
            copy = copy_of(copy_of(store))
            async with copy:
                assert (copy.url, copy.settings, copy.shards) == (redis_url, chosen, 3)
                assert await copy.get_rollout_by_id("r") is not None


async def test_many_first_uses_share_one_opening(store: StreamStore, redis_url: str) -> None:
    """Callers that come at the same time all wait for the one connection."""
    copy = copy_of(store)
    before = _openings(redis_url)
    async with copy:
        made = await asyncio.gather(*(copy.enqueue_rollout(number) for number in range(50)))
        assert len(await copy.query_rollouts(rollout_id_in=[one.rollout_id for one in made])) == 50
    assert _openings(redis_url) - before == 1


def _openings(url: str) -> int:
    """How often somebody has looked at the server before using it: an opening begins with a PING."""
    stats = ask(url, "INFO", "commandstats")
    return int(stats.partition(b"cmdstat_ping:calls=")[2].partition(b",")[0])


async def test_a_copy_that_was_never_used_can_be_closed(store: StreamStore) -> None:
    """There is nothing to close, and no loop to mind."""
    copy = copy_of(store)
    await copy.close()
    await copy.close()


async def test_a_consumer_needs_a_copy_that_is_open(store: StreamStore) -> None:
    """It says what to do first, and then it serves."""
    copy = copy_of(store)
    with pytest.raises(WrongLoop, match=r"await store\.open\(\)"):
        RolloutConsumer(copy, "w")
    async with await copy.open():
        await store.enqueue_rollout("x")
        consumer = RolloutConsumer(copy, "w")
        assert [one.input for one in await consumer.next(1)] == ["x"]
        await consumer.close()


async def test_a_copy_meets_a_server_that_lost_everything(servers: Servers, settings: Settings) -> None:
    """Functions and namespace are made again by the first call, as for any store."""
    server = servers.start()
    async with await StreamStore.connect(server.url, settings=settings) as store:
        copy = copy_of(store)
    for loss in (("FUNCTION", "FLUSH"), ("FLUSHALL",)):
        server.execute(*loss)
        async with copy_of(copy) as again:
            taken = await again.start_rollout("x")
            ids = {"rollout_id": taken.rollout_id, "attempt_id": taken.attempt.attempt_id}
            assert await again.add_span(reward(1, 1.0, **ids)) is not None


async def test_opening_a_copy_tells_that_its_namespace_no_longer_fits(store: StreamStore, redis_url: str) -> None:
    """What has changed since the pickle was made: the schema, or the number of shards."""
    meta = store.functions(0).keys.meta
    for field, value, error in (("schema", SCHEMA + 1, Upgrade), ("shards", 2, WrongShardCount)):
        before = ask(redis_url, "HGET", meta, field)
        ask(redis_url, "HSET", meta, field, value)
        copy = copy_of(store)
        with pytest.raises(error):
            await copy.open()
        await copy.close()
        ask(redis_url, "HSET", meta, field, before)


async def test_no_password_is_shown(servers: Servers, tmp_path: Path, namespace: str) -> None:
    """Neither by a store, nor by its copy, nor by a copy that the server refuses."""
    server = servers.start(config={"requirepass": PASSWORD}, tcp=True)
    url = server.url.replace("redis://", f"redis://:{PASSWORD.replace('/', '%2F')}@")
    settings = load_settings(redis_url=url, namespace=namespace, data_dir=tmp_path)
    async with await StreamStore.connect(settings=settings) as store:
        copy = copy_of(store)
        for one in (store, copy, store.settings, StoreClient("http://localhost:1", settings)):
            assert "secret" not in repr(one)
        assert namespace in repr(copy)
        async with copy:
            await copy.enqueue_rollout("x")
            assert "secret" not in repr(copy)
        later = copy_of(store)
        server.execute("CONFIG", "SET", "requirepass", "changed")
        with pytest.raises(AuthenticationFailed) as caught:
            await later.enqueue_rollout("y")
        assert "secret" not in str(caught.value)


def test_all_that_a_connection_does_waits_for_its_opening() -> None:
    """Each public method of a connection has one here, which opens it first."""
    public = {name for name, value in vars(RedisConnection).items() if not name.startswith("_") and callable(value)}
    assert {"execute", "reader", "close"} <= public
    assert public <= vars(LateConnection).keys()
