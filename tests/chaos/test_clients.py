"""A client that dies between taking a batch and using it: the batch comes back, and what is sent twice counts once."""

from __future__ import annotations

import pytest

from agl_streams.config import Settings, child_environment
from agl_streams.models import EnqueueRolloutRequest
from agl_streams.store import StreamStore
from tests.chaos.conftest import LEASE_S
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.processes import ProcessGroup
from tests.support.waiting import until

TRAINER = """
import asyncio, signal, sys
from agl_streams.config import load_settings
from agl_streams.store import StreamStore

async def main():
    settings = load_settings()
    async with await StreamStore.connect(settings=settings) as store:
        batch = await store.dequeue_many_rollouts(limit=8, worker_id="trainer", lease_seconds=float(sys.argv[1]))
        print("taken", len(batch), flush=True)
        await asyncio.to_thread(signal.pause)

asyncio.run(main())
"""


@pytest.mark.timeout(300)
async def test_a_batch_of_a_dead_client_comes_back(
    store: StreamStore, settings: Settings, crew: Crew, processes: ProcessGroup
) -> None:
    """After its lease, and the next client takes as many as it likes."""
    batch = [EnqueueRolloutRequest(input=n, rollout_id=f"r{n}") for n in range(8)]
    await store.enqueue_many_rollouts(batch)
    trainer = processes.python(TRAINER, str(LEASE_S), env=child_environment(settings))
    trainer.printed("taken 8")
    assert await store.dequeue_many_rollouts(limit=8) == []
    trainer.kill()
    crew.aggregator()

    async def are_back() -> bool:
        return len(await store.query_rollouts(status_in=["requeuing"])) == 8

    await until(are_back, what="the batch to be back")
    await store.enqueue_many_rollouts(batch)  # the submission is sent once more
    assert await store.connection.execute("XLEN", store.functions(0).keys.tasks) == 8
    first = await store.dequeue_many_rollouts(limit=3, worker_id="next")
    rest = await store.dequeue_many_rollouts(limit=100, worker_id="next")
    assert (len(first), len(rest)) == (3, 5)
    for taken in (*first, *rest, *first):  # some results are sent twice
        await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, "succeeded")
    ids = [request.rollout_id or "" for request in batch]
    await wait_until_done(store, ids)
    assert await store.finished_counts() == dict.fromkeys(ids, 1)
    assert {rollout.attempt.sequence_id for rollout in (*first, *rest)} == {2}
    await check_invariants(store, ids)
