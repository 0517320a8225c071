"""A namespace that does not fit: another shard count, keys of somebody else in the way, a newer release's schema."""

from __future__ import annotations

from typing import get_args

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.errors import ForeignKey, Upgrade, WrongShardCount
from agl_streams.keys import STATUSES, fixed_keys
from agl_streams.library import SCHEMA
from agl_streams.models import RolloutStatus
from agl_streams.store import StreamStore
from tests.support.raw import ask


async def test_a_namespace_keeps_its_shard_count(store: StreamStore, settings: Settings) -> None:
    """Connecting with another count is refused, and the error says which one to set."""
    with pytest.raises(WrongShardCount, match=r"'1'.*set AGL_SHARDS"):
        await StreamStore.connect(settings=settings.model_copy(update={"shards": 2}))
    await store.enqueue_rollout("still works")


@pytest.mark.parametrize(
    "name",
    ["meta", "log", "tasks", "finished", "dead", "resources", "index:created", "index:workers",
     "index:status:queuing", "live:deadlines", "live:leases", "live:sequence", "live:watch", "live:workers"],
)  # fmt: skip
async def test_a_foreign_key_in_the_way_is_named_at_connect(settings: Settings, redis_url: str, name: str) -> None:
    """A key of another kind under one of our names is an error that tells the ways out, before anything is written."""
    key = f"agl:{{{settings.namespace}.0}}:{name}"
    ask(redis_url, "SET", key, "somebody else's")
    with pytest.raises(ForeignKey, match=r"another AGL_NAMESPACE or another database"):
        await StreamStore.connect(settings=settings)
    assert ask(redis_url, "GETDEL", key) == b"somebody else's"


async def test_a_key_that_changes_its_kind_under_use_is_an_error_of_ours(store: StreamStore, redis_url: str) -> None:
    """A read that meets a key of another kind says so."""
    rollout = await store.enqueue_rollout("x")
    ask(redis_url, "SET", store.functions(0).keys.payload(f"rollout:{rollout.rollout_id}"), "overwritten")
    with pytest.raises(ForeignKey, match="another AGL_NAMESPACE"):
        await store.get_rollout_by_id(rollout.rollout_id)


async def test_an_older_release_refuses_a_newer_namespace(store: StreamStore, settings: Settings) -> None:
    """Writing and connecting raise Upgrade and change nothing; reading goes on."""
    rollout = await store.enqueue_rollout("x")
    await store.connection.execute("HSET", store.functions(0).keys.meta, "schema", SCHEMA + 1)
    with pytest.raises(Upgrade, match="upgrade agl-streams here"):
        await store.enqueue_rollout("y")
    with pytest.raises(Upgrade):
        await store.dequeue_rollout()
    with pytest.raises(Upgrade):
        await StreamStore.connect(settings=settings)
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout


async def test_two_namespaces_do_not_see_each_other(store: StreamStore, settings: Settings) -> None:
    """Equal ids in two namespaces of one server are two rollouts."""
    other = load_settings(redis_url=settings.redis_url, namespace=f"{settings.namespace}-other")
    async with await StreamStore.connect(settings=other) as second:
        await store.enqueue_rollout("first", rollout_id="same")
        await second.enqueue_rollout("second", rollout_id="same")
        await second.cancel_rollout("same", "of the other one")
        first = await store.get_rollout_by_id("same")
        assert first is not None
        assert (first.input, first.status) == ("first", "queuing")


def test_the_index_names_cover_every_status() -> None:
    """The key table knows each status of a rollout, so each index of one is checked."""
    assert set(STATUSES) == set(get_args(RolloutStatus))
    assert {f"index:status:{status}" for status in STATUSES} <= fixed_keys().keys()
