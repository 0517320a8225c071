"""Attempts end when they are overdue, whether or not anybody looks at them."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from agl_streams import RolloutConfig, StreamStore
from agl_streams.config import Settings, load_settings
from agl_workers.watchdog import LOOKS_PER_LEASE, Watchdog
from tests.support.waiting import until
from tests.workers.support import attempts_of, get, reason_of, running

pytestmark = pytest.mark.usefixtures("watchdog")

NEVER_S = 3600.0


async def has_status(store: StreamStore, rollout_id: str, status: str) -> bool:
    """Whether a rollout has come to this status."""
    return (await get(store, rollout_id)).status == status


async def test_an_attempt_that_takes_too_long_times_out(store: StreamStore) -> None:
    """An attempt past its rollout's timeout is ended by the watchdog, and its rollout fails."""
    rollout = await store.start_rollout("task", config=RolloutConfig(timeout_seconds=0.2))
    await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=20)
    (attempt,) = await attempts_of(store, rollout.rollout_id)
    assert (attempt.status, reason_of(attempt)) == ("timeout", "timeout")
    assert (await get(store, rollout.rollout_id)).status == "failed"


async def test_a_runner_that_is_gone_loses_its_attempt(store: StreamStore) -> None:
    """An attempt whose lease nobody renews is lost, and its rollout waits for another runner."""
    enqueued = await store.enqueue_rollout("task")
    await store.dequeue_rollout("gone", lease_seconds=0.2)
    await until(partial(has_status, store, enqueued.rollout_id, "requeuing"), what="the rollout in the queue")
    (attempt,) = await attempts_of(store, enqueued.rollout_id)
    assert (attempt.status, reason_of(attempt)) == ("unresponsive", "worker_lost")


async def test_two_watchdogs_end_an_attempt_once(store: StreamStore, settings: Settings) -> None:
    """With a second watchdog on the shard each overdue rollout has one entry among the finished."""
    async with await StreamStore.connect(settings=settings) as other, running(Watchdog(other, 0).run):
        config = RolloutConfig(timeout_seconds=0.1)
        ids = [(await store.start_rollout(number, config=config)).rollout_id for number in range(20)]
        done = await store.wait_for_rollouts(rollout_ids=ids, timeout=20)
    assert [one.status for one in done] == ["failed"] * 20
    assert await store.finished_counts() == dict.fromkeys(ids, 1)


async def test_a_deadline_that_comes_nearer_is_met(redis_url: str, namespace: str) -> None:
    """A deadline that is set while the watchdog rests for much longer wakes it in time."""
    settings = load_settings(redis_url=redis_url, namespace=f"{namespace}-b", lease_seconds=NEVER_S)
    assert NEVER_S / LOOKS_PER_LEASE > 100  # far beyond what this test waits for
    async with await StreamStore.connect(settings=settings) as store, running(Watchdog(store, 0).run):
        for limit_s in (0.5, 0.1):
            rollout = await store.start_rollout("task", config=RolloutConfig(timeout_seconds=limit_s))
            await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=20)
            assert (await get(store, rollout.rollout_id)).status == "failed"


async def test_a_limit_that_shrinks_is_met(redis_url: str, namespace: str) -> None:
    """A timeout that is set on a running rollout ends its attempt, although the watchdog knew of none."""
    settings = load_settings(redis_url=redis_url, namespace=f"{namespace}-b", lease_seconds=NEVER_S)
    async with await StreamStore.connect(settings=settings) as store, running(Watchdog(store, 0).run):
        rollout = await store.start_rollout("task")
        await store.update_rollout(rollout.rollout_id, config=RolloutConfig(timeout_seconds=0.1))
        await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=20)
        assert (await get(store, rollout.rollout_id)).status == "failed"


async def test_more_than_one_call_may_handle_is_ended_at_once(store: StreamStore) -> None:
    """Of many overdue attempts one look ends as many as a call may, and the loop goes on until all have ended."""
    config = RolloutConfig(timeout_seconds=0.3)
    rollouts = [await store.enqueue_rollout(number, config=config) for number in range(450)]
    assert len(await store.dequeue_many_rollouts(limit=450)) == 450
    ids = [rollout.rollout_id for rollout in rollouts]
    assert len(await store.wait_for_rollouts(rollout_ids=ids, timeout=20)) == 450


async def test_a_worker_that_is_gone_is_forgotten(redis_url: str, namespace: str) -> None:
    """Nobody asks for it; one that holds an attempt is still known then."""
    settings = load_settings(redis_url=redis_url, namespace=f"{namespace}-b", worker_idle_seconds=0.5)
    async with await StreamStore.connect(settings=settings) as store:
        await store.update_worker("gone")
        await store.start_rollout("task", worker_id="busy")
        async with running(Watchdog(store, 0).run):
            await until(partial(is_forgotten, store, "gone"), what="the worker to be forgotten")
        assert not await is_forgotten(store, "busy")


async def is_forgotten(store: StreamStore, worker_id: str) -> bool:
    """Whether a worker is not known."""
    return await store.get_worker_by_id(worker_id) is None


async def test_a_watchdog_stops_when_told(store: StreamStore) -> None:
    """A watchdog that has nothing to do for a long time ends as soon as it is told to."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(Watchdog(store, 0).run(stop))
    stop.set()
    await task
