"""An operator's hand in the queue: entries trimmed, deleted, skipped, taken from their reader. No rollout is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from agl_streams.models import EnqueueRolloutRequest
from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.chaos import events_later, feed, steady_load
from tests.support.chaos_operator import HANDS, Hand, add_nonsense, delete_stream, entries_of
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, events_of, wait_until_done
from tests.support.servers import ALL_BINARIES, Server, Servers

HELD = 10  # entries that a reader has in hand
STRIKES = 15
MANY = 1_000
MOST_PER_CALL = 50  # what one call of expire may put back


@pytest.fixture(params=ALL_BINARIES)
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """Both kinds of server: what they tell of groups, and allow with streams, is not the same in all of them."""
    return servers.start(request.param, {"appendfsync": "always"})


async def hold(store: StreamStore, count: int) -> None:
    """Be handed entries, as a reader that dies before it begins them."""
    tasks = store.functions(0).keys.tasks
    await store.connection.execute("XREADGROUP", "GROUP", "runners", "gone", "COUNT", count, "STREAMS", tasks, ">")


@pytest.mark.parametrize("hand", HANDS, ids=lambda hand: hand.__name__)
async def test_rollouts_outlive_an_operator(store: StreamStore, crew: Crew, hand: Hand) -> None:
    """Whatever an operator does to a queue with entries in hand and entries waiting, every rollout is done once."""
    ids = await feed(store, 3 * HELD)
    await hold(store, HELD)
    await hand(store, store.functions(0).keys.tasks)
    crew.aggregator()
    crew.runner("some_work")
    await wait_until_done(store, ids)
    await check_invariants(store, ids, spans=SPANS)


async def test_rollouts_outlive_operators_under_load(store: StreamStore, crew: Crew) -> None:
    """Operators who do all of it, again and again while runners work, lose and double nothing and stop nobody."""
    crew.aggregator()
    crew.runner("some_work")
    crew.runner("some_work")
    async with steady_load(store) as ids:
        for _ in range(STRIKES):
            await events_later(store, random.randrange(1, 60))
            await random.choice(HANDS)(store, store.functions(0).keys.tasks)
    await wait_until_done(store, ids)
    await check_invariants(store, ids, spans=SPANS)
    assert [member.name for member in crew.members if not member.running] == []


async def test_a_lost_queue_is_put_back_in_steps(store: StreamStore) -> None:
    """Rollouts whose entries vanished are queued again in their order, a bounded number in each call of expire."""
    requests = [EnqueueRolloutRequest(input=number) for number in range(MANY)]
    ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
    await delete_stream(store, store.functions(0).keys.tasks)

    first = await store.expire_once(0)
    assert (first.redelivered, first.more) == (MOST_PER_CALL, True)
    calls = 1
    while (await store.expire_once(0)).more:
        calls += 1
    assert calls == MANY // MOST_PER_CALL

    assert [rollout_id for _, rollout_id in await entries_of(store)] == ids
    assert "'reason': 'entry_missing'" in (await events_of(store, ids[0]))[-1]
    assert (await store.expire_once(0)).redelivered == 0


async def test_a_sound_queue_is_left_alone(store: StreamStore) -> None:
    """Entries that wait, and entries that a reader has in hand, are nobody's business for as long as they are young."""
    await feed(store, 3 * HELD)
    await hold(store, HELD)
    before = await entries_of(store)
    assert (await store.expire_once(0)).redelivered == 0
    assert await entries_of(store) == before


async def test_putting_back_uses_up_no_delivery(store: StreamStore) -> None:
    """A rollout whose entry vanishes more often than it may be delivered is still on the queue."""
    (rollout_id,) = await feed(store, 1)
    for _ in range(store.settings.max_deliveries + 1):
        await delete_stream(store, store.functions(0).keys.tasks)
        assert (await store.expire_once(0)).redelivered == 1
    claimed = await store.dequeue_rollout("worker")
    assert claimed is not None
    assert claimed.rollout_id == rollout_id


async def test_a_runner_survives_an_entry_that_is_none(store: StreamStore, crew: Crew) -> None:
    """An entry without a rollout is dropped by the runner that is handed it, which goes on with the next."""
    runner = crew.runner("some_work")
    tasks = store.functions(0).keys.tasks
    await asyncio.to_thread(runner.printed, "runner_started")
    await add_nonsense(store, tasks)
    crew.aggregator()
    ids = await feed(store, 3)
    await wait_until_done(store, ids)
    assert runner.running
    await check_invariants(store, ids, spans=SPANS)
