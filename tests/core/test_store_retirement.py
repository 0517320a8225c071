"""Workers that are gone are forgotten after a day; whoever may be needed is not, and nothing is lost with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from agl_streams.config import Settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.errors import CommandFailed
from agl_streams.keys import shard_of
from agl_streams.store import StreamStore
from tests.support.chaos import tally
from tests.support.raw import ask
from tests.support.timeline import Timeline
from tests.support.waiting import until

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


async def names(store: StreamStore) -> list[str]:
    """The workers that are known."""
    return [worker.worker_id for worker in await store.query_workers()]


async def consumers(store: StreamStore) -> dict[bytes, int]:
    """The consumers of the queue, and how much each holds."""
    reply = await store.connection.execute("XINFO", "CONSUMERS", store.functions(0).keys.tasks, "runners")
    rows = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in cast("Any", reply)]
    return {row[b"name"]: row[b"pending"] for row in rows if row[b"name"] != b"claim"}


async def finish_one(store: StreamStore, worker_id: str) -> str:
    """A worker begins a rollout and ends it; its id."""
    rollout = await store.start_rollout("x", worker_id=worker_id)
    await store.update_attempt(rollout.rollout_id, "latest", "succeeded")
    return rollout.rollout_id


@pytest.fixture
async def hasty(settings: Settings) -> AsyncGenerator[StreamStore]:
    """A store by whose settings everybody is idle for long at once: consumers have their times from the server."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"worker_idle_seconds": 1e-6})) as store:
        yield store


async def test_an_idle_worker_is_forgotten_after_a_day(store: StreamStore, time: Timeline) -> None:
    """Not an instant before; with an event, and without a trace of it in the server."""
    rollout_id = await finish_one(store, "w/1 ü")
    await store.update_worker("w/1 ü", {"cpu": 0.5})
    time.jumps(DAY_S - 1)
    assert await store.retire_workers_once(0) == []
    assert await names(store) == ["w/1 ü"]
    time.jumps(1)
    assert await store.retire_workers_once(0) == ["w/1 ü"]
    assert await names(store) == []
    assert await store.get_worker_by_id("w/1 ü") is None
    assert (await tally(store))["worker_retired"] == 1
    prefix = store.functions(0).keys.prefix
    left = await store.connection.execute("EXISTS", *(prefix + key for key in (
        "index:workers", "live:workers", "worker:w%2F1%20%C3%BC", "live:worker:w%2F1%20%C3%BC"
    )))  # fmt: skip
    assert left == 0
    assert (await time.attempt(rollout_id)).worker_id == "w/1 ü"


async def test_forgetting_again_changes_nothing(store: StreamStore, time: Timeline) -> None:
    """A call that is sent twice, or for somebody who never was, writes no second event."""
    await finish_one(store, "w")
    time.jumps(DAY_S)
    functions = store.functions(0)
    assert await functions.retire_workers(["w", "never-was"], "1000000") == ["w"]
    before = await tally(store)
    assert await functions.retire_workers(["w", "never-was"], "1000000") == []
    assert await tally(store) == before


@pytest.mark.parametrize("sign", ["heartbeat", "dequeue", "begin"])
async def test_a_forgotten_worker_that_comes_back_is_there_again(store: StreamStore, time: Timeline, sign: str) -> None:
    """By whatever sign of life."""
    await finish_one(store, "w")
    time.jumps(DAY_S)
    assert await store.retire_workers_once(0) == ["w"]
    if sign == "heartbeat":
        await store.update_worker("w")
    elif sign == "dequeue":
        await store.dequeue_rollout("w")
    else:
        await store.start_rollout("y", worker_id="w")
    assert await names(store) == ["w"]
    assert await store.retire_workers_once(0) == []


@pytest.mark.parametrize("sign", ["heartbeat", "dequeue", "begin", "end"])
async def test_a_worker_that_was_seen_within_the_day_stays(store: StreamStore, time: Timeline, sign: str) -> None:
    """Whatever was seen of it."""
    await finish_one(store, "w")
    begun = await store.start_rollout("long", worker_id="w") if sign == "end" else None
    time.jumps(HOUR_S)
    if sign == "heartbeat":
        await store.update_worker("w")
    elif sign == "dequeue":
        await store.dequeue_rollout("w")
    elif begun is None:
        await finish_one(store, "w")
    else:
        await store.update_attempt(begun.rollout_id, "latest", "failed")
    time.jumps(DAY_S - 1)
    assert await store.retire_workers_once(0) == []
    time.jumps(1)
    assert await store.retire_workers_once(0) == ["w"]


async def test_a_worker_with_an_open_attempt_stays(store: StreamStore, time: Timeline) -> None:
    """However long it is silent: nothing limits this attempt."""
    begun = await store.start_rollout("long", worker_id="w")
    time.jumps(30 * DAY_S)
    assert await store.retire_workers_once(0) == []
    await store.update_attempt(begun.rollout_id, "latest", "succeeded")
    time.jumps(DAY_S)
    assert await store.retire_workers_once(0) == ["w"]


async def test_a_worker_whose_row_shows_another_attempt_stays(store: StreamStore, time: Timeline) -> None:
    """The row shows the newest of its attempts, which has ended; an older one is open."""
    older = await store.start_rollout("long", worker_id="w")
    await finish_one(store, "w")
    time.jumps(2 * DAY_S)
    assert (await store.query_workers())[0].status == "idle"
    assert await store.retire_workers_once(0) == []
    await store.update_attempt(older.rollout_id, "latest", "succeeded")
    assert await store.retire_workers_once(0) == ["w"]


async def test_after_an_absence_nobody_is_forgotten(store: StreamStore, time: Timeline) -> None:
    """The workers that could not be heard of have one lease to show themselves."""
    await store.start_rollout("x", worker_id="other", lease_seconds=30.0)
    await finish_one(store, "w")
    await time.watched()
    time.jumps(DAY_S)
    await time.look()
    assert await store.retire_workers_once(0) == []
    await time.passes(31)
    assert "w" in await store.retire_workers_once(0)


async def test_a_worker_that_another_shard_has_seen_stays(settings: Settings) -> None:
    """Its row here is old, and it works on."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"shards": 2})) as store:
        time = Timeline(store)
        here, there = (next(f"r{n}" for n in range(99) if shard_of(f"r{n}", 2) == shard) for shard in (0, 1))
        for rollout_id in (here, there):
            await store.enqueue_rollout("x", rollout_id=rollout_id)
            await store.start_attempt(rollout_id, "w")
        await store.update_attempt(here, "latest", "succeeded")
        time.jumps(2 * DAY_S)
        assert await store.retire_workers_once(0) == []
        await store.update_attempt(there, "latest", "succeeded")
        assert await store.retire_workers_once(0) == []
        time.jumps(DAY_S)
        assert await store.retire_workers_once(0) == ["w"]
        assert await store.retire_workers_once(1) == ["w"]
        assert await names(store) == []


async def test_a_worker_that_polls_stays(store: StreamStore, time: Timeline) -> None:
    """It has been given nothing for a day, and asks."""
    await finish_one(store, "w")
    consumer = RolloutConsumer(store, "w")
    asking = asyncio.create_task(consumer.next(1))
    await until(lambda: consumers(store), what="the reader to be known")
    time.jumps(2 * DAY_S)
    assert await store.retire_workers_once(0) == []
    await consumer.close()
    await asking
    assert await store.retire_workers_once(0) == ["w"]


@pytest.mark.leaves_pending
async def test_a_consumer_with_entries_in_its_hands_stays(hasty: StreamStore) -> None:
    """Removing it would lose them; once they are back in the queue it goes, with an event."""
    rollout = await hasty.enqueue_rollout("x")
    tasks = hasty.functions(0).keys.tasks
    await hasty.connection.execute("XREADGROUP", "GROUP", "runners", "gone", "STREAMS", tasks, ">")
    for _ in range(3):
        assert await hasty.retire_workers_once(0) == []
        assert await hasty.functions(0).retire_workers(["gone"], "0") == []
    assert await consumers(hasty) == {b"gone": 1}
    assert (await hasty.functions(0).expire("30000000", 0, 3)).redelivered == 1
    await until(lambda: hasty.retire_workers_once(0), what="the consumer to be silent for a moment")
    assert await consumers(hasty) == {}
    assert (await tally(hasty))["worker_retired"] == 1
    taken = await hasty.dequeue_rollout()
    assert taken is not None
    assert taken.rollout_id == rollout.rollout_id


async def test_a_reader_whose_consumer_was_removed_is_given_work(store: StreamStore) -> None:
    """It is blocked meanwhile, and knows of nothing."""
    consumer = RolloutConsumer(store, "w")
    asking = asyncio.create_task(consumer.next(1))
    await until(lambda: consumers(store), what="the reader to be known")
    assert await store.functions(0).retire_workers(["w"], "0") == ["w"]
    assert await consumers(store) == {}
    rollout = await store.enqueue_rollout("x")
    assert [one.rollout_id for one in await asking] == [rollout.rollout_id]
    await consumer.close()


async def test_many_are_forgotten_in_several_calls(store: StreamStore, time: Timeline) -> None:
    """Each call is small; those with nothing but a heartbeat are among them."""
    for number in range(130):
        await store.update_worker(f"w{number:03}")
        if number % 2:
            await store.dequeue_rollout(f"w{number:03}")
    time.jumps(DAY_S)
    await store.update_worker("w007")
    assert len(await store.retire_workers_once(0)) == 129
    assert await names(store) == ["w007"]
    assert (await tally(store))["worker_retired"] == 129


async def test_a_late_report_brings_no_worker_back_for_good(store: StreamStore, time: Timeline) -> None:
    """What is left of an attempt that ended long after its worker was forgotten goes with the next look."""
    begun = await store.start_rollout("x", worker_id="w", lease_seconds=30.0)
    await time.passes(31)
    time.jumps(DAY_S)
    assert await store.retire_workers_once(0) == ["w"]
    await store.update_attempt(begun.rollout_id, begun.attempt.attempt_id, "succeeded")
    assert (await time.rollout(begun.rollout_id)).status == "succeeded"
    assert await names(store) == []
    await store.retire_workers_once(0)
    assert await store.connection.execute("EXISTS", store.functions(0).keys.workers) == 0


@pytest.mark.parametrize("loss", ["FLUSHALL of the namespace", "deleted queue"])
async def test_a_lost_queue_is_no_obstacle(hasty: StreamStore, redis_url: str, loss: str) -> None:
    """There are no consumers then; the group is made again."""
    await hasty.update_worker("w")
    keys = hasty.functions(0).keys
    ask(redis_url, "UNLINK", keys.tasks, *([keys.meta, keys.log] if loss != "deleted queue" else []))
    assert await hasty.retire_workers_once(0) == ["w"]


async def test_a_queue_that_is_none_is_told(hasty: StreamStore, redis_url: str) -> None:
    """Another failure than a missing group goes through."""
    ask(redis_url, "UNLINK", hasty.functions(0).keys.tasks)
    ask(redis_url, "SET", hasty.functions(0).keys.tasks, "somebody else's")
    with pytest.raises(CommandFailed, match="WRONGTYPE"):
        await hasty.retire_workers_once(0)
    ask(redis_url, "UNLINK", hasty.functions(0).keys.tasks)
