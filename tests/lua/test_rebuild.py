"""A namespace built again from its log has equal content, on another kind of server too, and goes on from there."""

from __future__ import annotations

import random
from typing import Any

import pytest

from agl_streams.config import Settings
from agl_streams.fold import fold
from agl_streams.models import EnqueueRolloutRequest, RolloutConfig
from agl_streams.replay import BATCH_BYTES, read_history, rebuild
from agl_streams.store import StreamStore
from tests.support.rebuild import Content, assert_equal_content, durable_content, folded_content
from tests.support.scenario import Scenario
from tests.support.servers import EMBEDDED, REDIS_7_0, Servers
from tests.support.spans import model_call


def renamed(settings: Settings) -> Settings:
    """The settings of the namespace to rebuild into."""
    return settings.model_copy(update={"namespace": f"{settings.namespace}-rebuilt"})


@pytest.mark.leaves_pending
@pytest.mark.parametrize(("first", "second"), [(REDIS_7_0, EMBEDDED), (EMBEDDED, REDIS_7_0), (EMBEDDED, EMBEDDED)])
async def test_a_rebuild_on_another_server_has_equal_content(
    servers: Servers, settings: Settings, first: str, second: str
) -> None:
    """Every durable key of a history with every command is the same, from Redis 7.0 to Valkey and back."""
    old, new = servers.start(first), servers.start(second)
    scenario = Scenario()
    async with (
        await StreamStore.connect(old.url, settings=settings) as source,
        await StreamStore.connect(new.url, settings=settings) as target,
    ):
        scenario.use_clock(source)
        for step in scenario.steps():
            await step(source)
        rebuilt = await rebuild(source, target)
        history = [one async for one in read_history(source, 0)]
    assert rebuilt.events == len(history)
    before = durable_content(old.url, settings.namespace)
    assert_equal_content(before, durable_content(new.url, settings.namespace), (first, second))
    folded = folded_content(history, fold(event for event, _ in history), 0, 1)
    assert_equal_content(before, folded, (first, "the fold in Python"))


@pytest.mark.leaves_pending
async def test_any_past_moment_can_be_shown(store: StreamStore, redis_url: str) -> None:
    """Folding the history up to a moment gives what the server held then, after each step of a story."""
    scenario, moments = Scenario(), list[Content]()
    scenario.use_clock(store)
    for step in scenario.steps():
        await step(store)
        await store.settle()
        moments.append(durable_content(redis_url, store.settings.namespace))
    history = [one async for one in read_history(store, 0)]
    for number, content in enumerate(moments):
        meta = content["0:meta"]
        assert isinstance(meta, dict)
        past = history[: int(meta["n"])]
        folded = folded_content(past, fold(event for event, _ in past), 0, 1)
        assert_equal_content(content, folded, (f"after step {number}", "folded"))


async def test_every_shard_is_rebuilt(settings: Settings, redis_url: str) -> None:
    """A namespace of three shards comes out equal, resources and workers in whatever shard they are."""
    sharded = settings.model_copy(update={"shards": 3})
    async with (
        await StreamStore.connect(settings=sharded) as source,
        await StreamStore.connect(settings=renamed(sharded)) as target,
    ):
        await source.add_resources({})
        for number in range(12):
            await source.enqueue_rollout(number)
        for attempted in await source.dequeue_many_rollouts(limit=8, worker_id="w", lease_seconds=30.0):
            ids: dict[str, Any] = {"rollout_id": attempted.rollout_id, "attempt_id": attempted.attempt.attempt_id}
            await source.add_span(model_call(1, **ids))
            await source.update_attempt(ids["rollout_id"], ids["attempt_id"], "succeeded")
        await source.settle()
        await rebuild(source, target)
    contents = [durable_content(redis_url, one.settings.namespace) for one in (source, target)]
    assert {name.split(":")[0] for name in contents[0]} == {"0", "1", "2"}
    assert_equal_content(contents[0], contents[1], ("original", "rebuilt"))


async def test_an_empty_namespace_is_rebuilt_as_an_empty_one(store: StreamStore, settings: Settings) -> None:
    """No event, nothing to do."""
    async with await StreamStore.connect(settings=renamed(settings)) as target:
        rebuilt = await rebuild(store, target)
        assert (rebuilt.events, rebuilt.armed) == (0, 0)
        assert (await target.query_rollouts()).total == 0


async def test_large_payloads_are_rebuilt_in_small_calls(
    store: StreamStore, settings: Settings, redis_url: str
) -> None:
    """Inputs of several megabytes and a hundred small ones between them come out equal."""
    noise = random.Random(7).randbytes(BATCH_BYTES + 1).hex()
    for number in range(4):
        await store.enqueue_rollout(f"{number}{noise}", rollout_id=f"large-{number}")
        await store.enqueue_many_rollouts([_small(number, at) for at in range(30)])
    await store.settle()
    async with await StreamStore.connect(settings=renamed(settings)) as target:
        await rebuild(store, target)
    contents = [durable_content(redis_url, one.settings.namespace) for one in (store, target)]
    assert len(contents[0]["0:body:large-0:1"]) > BATCH_BYTES
    assert_equal_content(contents[0], contents[1], ("original", "rebuilt"))


async def test_open_attempts_start_with_a_full_lease_after_a_rebuild(store: StreamStore, settings: Settings) -> None:
    """Live state is not in the log: leases and limits hold again from the rebuild on, and numbers are never reused."""
    store.functions(0).clock_us = lambda: 1_000_000_000
    for number in range(3):
        await store.enqueue_rollout(number, rollout_id=f"r{number}", config=RolloutConfig(max_attempts=1))
    open_one, ended, _ = await store.dequeue_many_rollouts(limit=3, worker_id="w", lease_seconds=30.0)
    await store.update_attempt(ended.rollout_id, ended.attempt.attempt_id, "failed")
    ids: dict[str, Any] = {"rollout_id": open_one.rollout_id, "attempt_id": open_one.attempt.attempt_id}
    await store.add_span(model_call(5, **ids))
    async with await StreamStore.connect(settings=renamed(settings)) as target:
        functions = target.functions(0)
        now = 1_100_000_000
        functions.clock_us = lambda: now
        assert (await rebuild(store, target)).armed == 2
        for step in (0, 9, 9, 9):
            now += step * 1_000_000
            assert (await target.expire_once(0)).ended == 0
        now += 9_000_000
        assert (await target.expire_once(0)).ended == 2
        assert await target.get_next_span_sequence_id(*ids.values()) > 1000


def _small(number: int, at: int) -> EnqueueRolloutRequest:
    return EnqueueRolloutRequest(input={"number": number, "at": at})
