"""Seeded rollouts are what the commands would have left behind."""

from __future__ import annotations

from agl_streams.bench.seeding import arm, finished, running, seed, seeded_id
from agl_streams.store import StreamStore
from tests.support.invariants import check_invariants

COUNT = 250  # more than one call of `replay` takes


async def test_seeded_rollouts_are_finished(store: StreamStore) -> None:
    """Each is finished once, and the projections are what log, `apply` and fold say."""
    await seed(store, COUNT, finished)
    ids = [seeded_id(number) for number in range(COUNT)]
    await store.settle()
    await check_invariants(store, ids, spans=0)
    page = await store.query_rollouts(status_in=["succeeded"])
    assert [rollout.rollout_id for rollout in page] == ids
    assert len({rollout.start_time for rollout in page}) == COUNT


async def test_the_store_goes_on_after_seeded_rollouts(store: StreamStore) -> None:
    """A rollout that is enqueued afterwards is the newest, and goes its way."""
    await seed(store, 3, finished)
    rollout = await store.enqueue_rollout({"task": 1})
    newest = await store.query_rollouts(sort_by="start_time", sort_order="desc", limit=1)
    assert newest[0].rollout_id == rollout.rollout_id
    attempted = await store.dequeue_rollout()
    assert attempted is not None
    await store.update_attempt(rollout.rollout_id, attempted.attempt.attempt_id, "succeeded")
    assert await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=0)


async def test_seeded_attempts_run_and_are_watched(store: StreamStore) -> None:
    """Each attempt is open with a deadline that is not due."""
    await seed(store, COUNT, running)
    await arm(store, COUNT)
    assert len(await store.query_rollouts(status_in=["running"])) == COUNT
    result = await store.expire_once(0)
    assert result.ended == 0
    assert result.next_deadline_us is not None
    assert await store.connection.execute("ZCARD", store.functions(0).keys.prefix + "live:deadlines") == COUNT
