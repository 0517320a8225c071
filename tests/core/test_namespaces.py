"""Namespaces on one server do not disturb each other, and one that does not fit says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agl_streams.config import Settings, child_environment, load_settings
from agl_streams.errors import Upgrade
from agl_streams.keys import parse
from agl_streams.library import SCHEMA
from agl_streams.store import StreamStore
from tests.support.builds import NEWER, become_newer
from tests.support.leaks import all_keys
from tests.support.processes import ProcessGroup
from tests.support.raw import Raw, ask
from tests.support.spans import reward


def meta_of(settings: Settings, shard: int = 0) -> str:
    """The key that tells of a shard."""
    return f"agl:{{{settings.namespace}.{shard}}}:meta"


async def live_through(store: StreamStore, rollout_id: str) -> None:
    """A rollout from its beginning to its end, with a worker, resources and a span."""
    await store.update_resources("rs", {})
    await store.enqueue_rollout({"of": store.settings.namespace}, rollout_id=rollout_id)
    await store.update_worker("w", {"namespace": store.settings.namespace})
    taken = await store.dequeue_rollout("w", lease_seconds=30.0)
    assert taken is not None
    assert taken.input == {"of": store.settings.namespace}
    ids = {"rollout_id": rollout_id, "attempt_id": taken.attempt.attempt_id}
    assert await store.add_span(reward(1, 1.0, span_id="same", **ids)) is not None
    await store.update_attempt(rollout_id, taken.attempt.attempt_id, "succeeded")
    assert len(await store.wait_for_rollouts(rollout_ids=[rollout_id], timeout=20)) == 1


async def wrong_shards(settings: Settings) -> None:
    """Made with two shards."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"shards": 2})):
        pass


async def newer_schema(settings: Settings) -> None:
    """Used by a newer release."""
    async with await StreamStore.connect(settings=settings) as store:
        await become_newer(store)


async def foreign_key(settings: Settings) -> None:
    """Somebody else's key where ours go."""
    ask(settings.redis_url or "", "LPUSH", meta_of(settings), "an item of somebody else")


@pytest.mark.parametrize(
    ("spoil", "told", "way_out"),
    [
        (wrong_shards, "setup('2', '1')", "set AGL_SHARDS to it, or use another AGL_NAMESPACE"),
        (newer_schema, "a newer release has written to this namespace", "upgrade agl-streams here"),
        (foreign_key, "a key of another kind", "use another AGL_NAMESPACE or another database"),
    ],
)
@pytest.mark.parametrize("command", [("aggregate",), ("worker", "tests.chaos.agents:some_work"), ("serve",)])
async def test_a_namespace_that_does_not_fit_ends_a_command(
    settings: Settings,
    processes: ProcessGroup,
    spoil: Callable[[Settings], Awaitable[None]],
    told: str,
    way_out: str,
    command: tuple[str, ...],
) -> None:
    """At its start, with one line that names the trouble and the way out; what was there is as it was."""
    await spoil(settings)
    url = settings.redis_url or ""
    before = ask(url, "DUMP", meta_of(settings))
    environment = child_environment(settings.model_copy(update={"server_port": 0}))
    process = processes.module("agl_streams.cli", *command, env=environment)
    assert await asyncio.to_thread(process.wait) == 2
    (line,) = [line for line in process.output.splitlines() if line.startswith("error: ")]
    assert told in line
    assert way_out in line
    assert "Traceback" not in process.output
    assert ask(url, "DUMP", meta_of(settings)) == before
    ask(url, "UNLINK", meta_of(settings))


async def test_a_newer_release_goes_on_where_an_older_one_stopped(store: StreamStore, settings: Settings) -> None:
    """It raises the schema; what the older one began it ends; the older one may read and not write."""
    rollout = await store.enqueue_rollout("begun by the older")
    taken = await store.dequeue_rollout("w")
    assert taken is not None
    async with await StreamStore.connect(settings=settings) as newer:
        await become_newer(newer)
        await newer.update_attempt(rollout.rollout_id, taken.attempt.attempt_id, "succeeded")
        await newer.settle()
        log_length = ask(store.url, "XLEN", store.functions(0).keys.log)
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: store.enqueue_rollout("x"),
            lambda: store.dequeue_rollout("w"),
            lambda: store.update_worker("w"),
            lambda: store.settle(),
            lambda: store.expire_once(0),
            lambda: store.cancel_rollout(rollout.rollout_id, "late"),
        ]
        for call in refused:
            with pytest.raises(Upgrade, match="upgrade agl-streams here"):
                await call()
        assert ask(store.url, "XLEN", store.functions(0).keys.log) == log_length
        found = await store.get_rollout_by_id(rollout.rollout_id)
        assert found is not None
        assert found.status == "succeeded"
    assert int(ask(store.url, "HGET", meta_of(settings), "schema")) == NEWER == SCHEMA + 1


async def test_names_that_begin_alike_are_namespaces_apart(redis_url: str, namespace: str) -> None:
    """`a`, `a.0`, `a.0.0` and `a-b`, with one shard or three: equal ids in each, and no key is shared."""
    chosen = [
        load_settings(redis_url=redis_url, namespace=f"{namespace}{suffix}", shards=shards)
        for suffix, shards in (("", 3), (".0", 1), (".0.0", 2), ("-b", 1), (".1", 1))
    ]
    stores = [await StreamStore.connect(settings=settings) for settings in chosen]
    await asyncio.gather(*(live_through(store, "same") for store in stores))
    for store in stores:
        assert [one.input for one in await store.query_rollouts()] == [{"of": store.settings.namespace}]
        worker = await store.get_worker_by_id("w")
        assert worker is not None
        assert worker.heartbeat_stats == {"namespace": store.settings.namespace}
        assert len(await store.query_spans("same")) == 1
        await store.close()
    with Raw(redis_url) as raw:
        of = [parse(key).namespace for key in all_keys(raw) if parse(key).namespace.startswith(namespace)]
    assert set(of) == {settings.namespace for settings in chosen}


async def test_a_namespace_is_deleted_by_the_patterns_of_its_shards(redis_url: str, namespace: str) -> None:
    """As the page of operations says: one pattern for each shard takes all of it and nothing of its neighbours."""
    chosen = [
        load_settings(redis_url=redis_url, namespace=f"{namespace}{suffix}", shards=shards)
        for suffix, shards in (("", 2), (".0", 1), (".1", 1), ("0", 1))
    ]
    for settings in chosen:
        async with await StreamStore.connect(settings=settings) as store:
            await live_through(store, "same")
    with Raw(redis_url) as raw:
        for shard in range(2):
            found: list[bytes] = raw.execute("KEYS", f"agl:{{{namespace}.{shard}}}:*")
            raw.execute("UNLINK", *found)
        left = {parse(key).namespace for key in all_keys(raw)}
    assert {settings.namespace for settings in chosen} & left == {
        f"{namespace}{suffix}" for suffix in (".0", ".1", "0")
    }
    for settings in chosen:
        async with await StreamStore.connect(settings=settings) as store:
            assert (await store.query_rollouts()).total == (0 if settings is chosen[0] else 1)
