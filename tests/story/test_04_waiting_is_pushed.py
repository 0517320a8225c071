"""Chapter 4: whoever waits, for work or for results, is told; nobody asks again and again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

import pytest

from agl_streams import AttemptedRollout, RolloutConsumer, StreamStore
from tests.support.waiting import until


@pytest.fixture
async def consumer(store: StreamStore) -> AsyncGenerator[RolloutConsumer]:
    """What a runner process takes its work from."""
    consumer = RolloutConsumer(store, "worker-1")
    yield consumer
    await consumer.close()


async def blocked_reads(store: StreamStore) -> int:
    """How many clients the server keeps waiting in a blocking read."""
    info = await store.connection.execute("INFO", "clients")
    assert isinstance(info, bytes)
    found = re.search(rb"blocked_clients:(\d+)", info)
    assert found is not None
    return int(found[1])


async def finish(store: StreamStore, taken: AttemptedRollout) -> None:
    """Report success."""
    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")


async def test_a_waiter_resumes_when_its_rollout_finishes(store: StreamStore) -> None:
    """A wait without a timeout ends with the rollout, and returns it."""
    rollout = await store.enqueue_rollout("task")
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[rollout.rollout_id]))
    taken = await store.dequeue_rollout()
    assert taken is not None

    await finish(store, taken)

    (finished,) = await waiting
    assert (finished.rollout_id, finished.status) == (rollout.rollout_id, "succeeded")


async def test_a_thousand_waiters_are_one_blocked_read(store: StreamStore) -> None:
    """All waiters of a process share one reader, so that waiting costs the server the same for one and for many."""
    rollout = await store.enqueue_rollout("task")
    before = await blocked_reads(store)
    waits = [asyncio.create_task(store.wait_for_rollouts(rollout_ids=[rollout.rollout_id])) for _ in range(1000)]
    await until(lambda: blocked_reads(store), what="the reader to block")
    assert await blocked_reads(store) == before + 1

    await store.cancel_rollout(rollout.rollout_id, "enough waited")

    assert [[one.status for one in found] for found in await asyncio.gather(*waits)] == [["cancelled"]] * 1000


async def test_a_timeout_returns_what_is_finished(store: StreamStore) -> None:
    """At its deadline a wait gives the finished rollouts in the order asked, and leaves out the rest."""
    first, second, third = [await store.enqueue_rollout(task) for task in ("a", "b", "c")]
    for taken in await store.dequeue_many_rollouts(limit=2):
        await finish(store, taken)

    asked = [third.rollout_id, second.rollout_id, "ro-unknown", first.rollout_id]
    found = await store.wait_for_rollouts(rollout_ids=asked, timeout=0.05)

    assert [rollout.rollout_id for rollout in found] == [second.rollout_id, first.rollout_id]


async def test_work_is_pushed_to_a_waiting_runner(store: StreamStore, consumer: RolloutConsumer) -> None:
    """A runner blocks until there is work, and gets it with its attempt already open."""
    waiting = asyncio.create_task(consumer.next(places=1))
    await until(lambda: blocked_reads(store), what="the runner to block")

    rollout = await store.enqueue_rollout("task")

    (begun,) = await waiting
    assert begun.rollout_id == rollout.rollout_id
    assert (begun.attempt.status, begun.attempt.worker_id) == ("preparing", "worker-1")
    await finish(store, begun)


async def test_a_runner_takes_no_more_than_it_has_places(store: StreamStore, consumer: RolloutConsumer) -> None:
    """What a runner has no place for stays on the queue for others."""
    for task in ("a", "b", "c"):
        await store.enqueue_rollout(task)

    begun = await consumer.next(places=2)

    assert [rollout.input for rollout in begun] == ["a", "b"]
    other = await store.dequeue_rollout("worker-2")
    assert other is not None
    assert other.input == "c"


async def test_a_runner_that_stops_loses_nothing(store: StreamStore, consumer: RolloutConsumer) -> None:
    """Stopping ends the blocked read at the server, and what is enqueued afterwards waits for somebody else."""
    waiting = asyncio.create_task(consumer.next(places=1))
    await until(lambda: blocked_reads(store), what="the runner to block")

    await consumer.stop()
    assert await waiting == []

    await store.enqueue_rollout("task")
    assert await store.dequeue_rollout("worker-2") is not None
