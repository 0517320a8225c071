"""What is known of workers: derived from what their attempts do, from heartbeats and from asking for work."""

from __future__ import annotations

from typing import Literal, cast

import pytest

from agl_streams.config import Settings
from agl_streams.errors import InvalidRequest
from agl_streams.keys import shard_of
from agl_streams.models import Worker
from agl_streams.store import StreamStore
from tests.support.spans import reward
from tests.support.timeline import Timeline

BEGIN = 1_700_000_000.0


async def worker(store: StreamStore, worker_id: str = "w") -> Worker:
    """How a worker stands."""
    found = await store.get_worker_by_id(worker_id)
    assert found is not None
    return found


async def test_an_unknown_worker_is_none(store: StreamStore) -> None:
    """Nobody has heard of it."""
    assert await store.get_worker_by_id("w") is None
    assert (await store.query_workers()).total == 0


async def test_a_dequeue_makes_its_worker_busy(store: StreamStore, time: Timeline) -> None:
    """With the attempt's ids, and the times of asking and of beginning."""
    await store.enqueue_rollout("x", rollout_id="r")
    time.jumps(5)
    taken = await time.take(worker_id="w")
    assert await worker(store) == Worker(
        worker_id="w",
        status="busy",
        last_dequeue_time=BEGIN + 5,
        last_busy_time=BEGIN + 5,
        current_rollout_id="r",
        current_attempt_id=taken.attempt.attempt_id,
    )


async def test_a_dequeue_that_finds_nothing_makes_its_worker_idle(store: StreamStore, time: Timeline) -> None:
    """Every ask is noted, the change to idle only once."""
    await store.dequeue_rollout("w")
    time.jumps(5)
    await store.dequeue_rollout("w")
    assert await worker(store) == Worker(
        worker_id="w", status="idle", last_dequeue_time=BEGIN + 5, last_idle_time=BEGIN
    )


async def test_a_busy_worker_that_finds_nothing_is_idle(store: StreamStore, time: Timeline) -> None:
    """It would not ask if it were busy."""
    await store.enqueue_rollout("x")
    await time.take(worker_id="w")
    time.jumps(5)
    await store.dequeue_rollout("w")
    found = await worker(store)
    assert (found.status, found.current_attempt_id, found.last_idle_time) == ("idle", None, BEGIN + 5)


async def test_an_unnamed_dequeue_makes_no_worker(store: StreamStore, time: Timeline) -> None:
    """Nobody is noted when nobody is named."""
    await store.enqueue_rollout("x")
    await time.take()
    await store.dequeue_rollout()
    assert (await store.query_workers()).total == 0


@pytest.mark.parametrize(
    ("status", "becomes"),
    [("succeeded", "idle"), ("failed", "idle"), ("timeout", "unknown"), ("unresponsive", "unknown")],
)
async def test_the_end_of_its_attempt_frees_a_worker(
    store: StreamStore,
    time: Timeline,
    status: Literal["succeeded", "failed", "timeout", "unresponsive"],
    becomes: str,
) -> None:
    """Idle after a report, unknown after a loss; the current ids are cleared."""
    await store.start_rollout("x", worker_id="w")
    time.jumps(5)
    rollout_id = (await store.query_rollouts())[0].rollout_id
    await store.update_attempt(rollout_id, "latest", status)
    assert await worker(store) == Worker(
        worker_id="w", status=cast("Literal['idle']", becomes), last_busy_time=BEGIN, last_idle_time=BEGIN + 5
    )


async def test_a_worker_with_several_attempts_shows_the_newest(store: StreamStore) -> None:
    """And changes with the end of that one only."""
    for rollout_id in "abc":
        await store.enqueue_rollout("x", rollout_id=rollout_id)
    taken = await store.dequeue_many_rollouts(limit=3, worker_id="w")
    assert (await worker(store)).current_rollout_id == "c"
    for one in taken[:2]:
        await store.update_attempt(one.rollout_id, one.attempt.attempt_id, "succeeded")
    found = await worker(store)
    assert (found.status, found.current_rollout_id) == ("busy", "c")
    await store.update_attempt("c", "latest", "succeeded")
    assert (await worker(store)).status == "idle"


async def test_a_first_span_takes_no_workers_row_over(store: StreamStore) -> None:
    """The row of a busy worker shows what it began last, whatever its other attempts do."""
    first = await store.start_rollout("x", worker_id="w")
    second = await store.start_rollout("y", worker_id="w")
    await store.add_span(reward(1, 1.0, rollout_id=first.rollout_id, attempt_id=first.attempt.attempt_id))
    assert (await worker(store)).current_rollout_id == second.rollout_id


async def test_a_revived_attempt_makes_its_worker_busy_again(store: StreamStore, time: Timeline) -> None:
    """The worker that was unknown has shown up."""
    started = await store.start_rollout("x", worker_id="w", lease_seconds=30.0)
    await time.passes(31)
    assert (await worker(store)).status == "unknown"
    await store.renew_attempt(started.rollout_id, started.attempt.attempt_id)
    found = await worker(store)
    assert (found.status, found.current_rollout_id, found.last_busy_time) == ("busy", started.rollout_id, time.now)


async def test_a_report_that_names_a_worker_shows_on_its_row(store: StreamStore) -> None:
    """The attempt is handed to a worker by `update_attempt`."""
    started = await store.start_rollout("x")
    await store.update_attempt(started.rollout_id, "latest", "running", worker_id="v")
    assert (await worker(store, "v")).current_rollout_id == started.rollout_id


async def test_starting_by_hand_is_no_dequeue(store: StreamStore) -> None:
    """Busy, but it has not asked for work, also when the rollout was waiting."""
    await store.enqueue_rollout("x", rollout_id="r")
    await store.start_attempt("r", "w")
    found = await worker(store)
    assert (found.status, found.last_dequeue_time) == ("busy", None)


async def test_a_heartbeat_touches_nothing_else(store: StreamStore, time: Timeline) -> None:
    """A new worker is unknown; a busy one stays busy; statistics stay until there are others."""
    time.jumps(1)
    assert await store.update_worker("w", {"cpu": 0.5}) == Worker(
        worker_id="w", heartbeat_stats={"cpu": 0.5}, last_heartbeat_time=BEGIN + 1
    )
    await store.start_rollout("x", worker_id="w")
    before = await worker(store)
    time.jumps(1)
    assert await store.update_worker("w") == before.model_copy(update={"last_heartbeat_time": BEGIN + 2})
    assert (await store.update_worker("w", {})).heartbeat_stats == {}


async def test_any_printable_text_is_a_worker_id(store: StreamStore) -> None:
    """It comes back as it was given, in every place."""
    name = "höst/1:a b{c}%20 " + "x" * 200
    started = await store.start_rollout("x", worker_id=name)
    assert started.attempt.worker_id == name
    assert (await worker(store, name)).worker_id == name
    assert [one.worker_id for one in await store.query_workers()] == [name]


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "\x00", "\ud800"])
async def test_other_worker_ids_are_refused(store: StreamStore, name: str) -> None:
    """Nothing is noted of them."""
    with pytest.raises(InvalidRequest, match="worker id"):
        await store.update_worker(name)
    with pytest.raises(InvalidRequest, match="worker id"):
        await store.dequeue_rollout(name)
    assert (await store.query_workers()).total == 0


async def test_a_workers_rows_of_several_shards_are_one(settings: Settings) -> None:
    """The newest transition wins, also one to unknown; of each time the latest is shown."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"shards": 2})) as store:
        time = await Timeline(store).watched()
        first, second = (next(one for one in map(str, range(99)) if shard_of(one, 2) == shard) for shard in range(2))
        for rollout_id in (first, second):
            await store.enqueue_rollout("x", rollout_id=rollout_id)
            time.jumps(1)
            await store.start_attempt(rollout_id, "w")
        assert (await worker(store)).current_rollout_id == second
        time.jumps(1)
        await store.update_attempt(second, "latest", "succeeded")
        assert (await worker(store)).status == "idle"
        time.jumps(1)
        await store.update_attempt(first, "latest", "unresponsive")
        found = await worker(store)
        assert (found.status, found.last_idle_time) == ("unknown", time.now)
