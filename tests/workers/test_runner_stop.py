"""A runner that is stopped finishes what it can and leaves the rest to its leases."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from agl_streams import StreamStore, rollout
from agl_streams.errors import InvalidRequest
from agl_workers import places
from agl_workers.runner import Runner
from tests.support.waiting import until
from tests.workers.support import WORKER, attempts_of, get, reason_of, running


async def test_an_idle_runner_stops_at_once(store: StreamStore) -> None:
    """A runner that waits for work ends when it is told to, and leaves its group."""

    @rollout
    async def unused(task: str) -> None:
        raise AssertionError(task)

    async with running(Runner(store, unused, worker_id=WORKER).run):
        await until(lambda: store.get_worker_by_id(WORKER), what="the worker")


async def test_what_is_not_done_in_time_is_left_to_its_lease(store: StreamStore, watchdog: object) -> None:
    """An agent that is not done within the drain time is cancelled; its rollout is queued again and no attempt used."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @rollout
    async def endless(task: str) -> float:
        if begun.is_set():
            return 1.0
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 0.0

    enqueued = await store.enqueue_rollout("task")
    async with running(Runner(store, endless, worker_id=WORKER, drain_seconds=0.05).run):
        await begun.wait()
    assert cancelled.is_set()

    async def lost() -> bool:
        return (await get(store, enqueued.rollout_id)).status == "requeuing"

    await until(lost, what="the rollout in the queue")
    async with running(Runner(store, endless, worker_id="worker-2").run):
        (done,) = await store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id])
    assert done.status == "succeeded"
    first, second = await attempts_of(store, enqueued.rollout_id)
    assert (first.status, reason_of(first), second.status) == ("unresponsive", "worker_lost", "succeeded")


async def test_an_agent_that_ignores_its_cancellation_does_not_hold_the_runner(
    store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that goes on after it was cancelled is left behind, and the runner ends without it."""
    monkeypatch.setattr(places, "LAST_WORDS_S", 0.05)
    begun, may_end = asyncio.Event(), asyncio.Event()

    @rollout
    async def deaf(task: str) -> None:
        begun.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    await store.enqueue_rollout("task")
    async with running(Runner(store, deaf, worker_id=WORKER, drain_seconds=0.05).run):
        await begun.wait()
    may_end.set()


async def test_a_cancelled_runner_leaves_nothing_behind(store: StreamStore) -> None:
    """A runner whose task is cancelled, as by a second signal, stops its agents and leaves its group."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @rollout
    async def endless(task: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await store.enqueue_rollout("task")
    running_forever = asyncio.ensure_future(Runner(store, endless, worker_id=WORKER).run(asyncio.Event()))
    await begun.wait()
    running_forever.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running_forever
    assert cancelled.is_set()


async def test_starting_and_stopping_at_any_moment_loses_nothing(store: StreamStore) -> None:
    """Runners that are started and stopped over and over do each rollout once, with one attempt."""

    @rollout
    async def quick(task: int) -> float:
        return float(task)

    ids = [(await store.enqueue_rollout(number)).rollout_id for number in range(60)]

    async def all_done() -> bool:
        return len(await store.query_rollouts(status_in=["succeeded"])) == len(ids)

    for turn in range(60):
        async with running(Runner(store, quick, worker_id=f"worker-{turn}", concurrency=3).run):
            await until(partial(_some_progress, store, turn), what="another rollout")
        if await all_done():
            break
    assert await all_done()
    assert [len(await attempts_of(store, rollout_id)) for rollout_id in ids] == [1] * len(ids)


async def _some_progress(store: StreamStore, done: int) -> bool:
    return len(await store.query_rollouts(status_in=["succeeded"])) > done


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"max_rollouts": -1}, {"lease_seconds": 0.0}])
async def test_numbers_that_make_no_sense_are_refused(store: StreamStore, wrong: dict[str, int]) -> None:
    """A runner without places, rollouts or lease is refused when it is made, naming what is wrong."""

    @rollout
    async def unused(task: str) -> None:
        raise AssertionError(task)

    with pytest.raises(InvalidRequest, match=r"must be above 0"):
        Runner(store, unused, worker_id=WORKER, **wrong)
