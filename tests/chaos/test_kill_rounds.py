"""kill -9 at random moments under load: of the aggregator, of a runner, of the server. Nothing is lost or doubled.

Each round feeds rollouts, kills when a random number of events has been written, waits for the end of all work and
checks every invariant over everything that the namespace has seen so far.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.chaos import events_later, feed, tally
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.servers import Server

ROUNDS = 20
ROLLOUTS = 12  # of each round
MOMENTS = 4 * ROLLOUTS  # events among which the moment is chosen; an undisturbed rollout writes six

# A namespace grows with its rounds, and so does the time that a check of it takes: 200 rounds are ten lives of twenty.
LIVES = [0, *(pytest.param(life, marks=pytest.mark.soak) for life in range(1, 11))]

pytestmark = [pytest.mark.parametrize("life", LIVES), pytest.mark.timeout(600)]


async def play(store: StreamStore, life: int, strike: Callable[[], Awaitable[object]]) -> Counter[str]:
    """Play the rounds, with one strike each; what is in the log afterwards, which a failed or `-rP` run shows."""
    chance = random.Random(random.random() + life)
    rollout_ids: list[str] = []
    for _ in range(ROUNDS):
        feeding = asyncio.create_task(feed(store, ROLLOUTS))
        await events_later(store, chance.randrange(MOMENTS))
        await strike()
        rollout_ids += await feeding
        await wait_until_done(store, rollout_ids[-ROLLOUTS:])
        await check_invariants(store, rollout_ids, spans=SPANS)
    kinds = await tally(store)
    sys.stdout.write(f"{ROUNDS} rounds, {len(rollout_ids)} rollouts: {dict(kinds)}\n")
    return kinds


async def test_a_killed_aggregator_loses_and_doubles_nothing(store: StreamStore, crew: Crew, life: int) -> None:
    """The aggregator is killed while it folds; the next one goes on where it was, and the sums are the log's."""
    aggregators = [crew.aggregator()]
    crew.runner("some_work")
    crew.runner("some_work")

    async def strike() -> None:
        aggregators.pop().kill()
        aggregators.append(crew.aggregator())

    await play(store, life, strike)


async def test_a_killed_runner_loses_and_doubles_nothing(store: StreamStore, crew: Crew, life: int) -> None:
    """A runner is killed with what it holds; its leases run out and the others do the work, once."""
    crew.aggregator()
    runners = [crew.runner("some_work") for _ in range(2)]

    async def strike() -> None:
        runners.pop(0).kill()
        runners.append(crew.runner("some_work"))

    kinds = await play(store, life, strike)
    assert kinds["attempt_lost worker_lost"] > 0  # the kills did hit


async def test_a_killed_server_loses_and_doubles_nothing(
    store: StreamStore, crew: Crew, server: Server, life: int
) -> None:
    """The server is killed and loads its file again; every process waits for it, reconnects, and none ends."""
    crew.aggregator()
    crew.runner("some_work")
    crew.runner("some_work")

    async def strike() -> None:
        await asyncio.to_thread(server.restart)

    await play(store, life, strike)
    assert [member.name for member in crew.members if not member.running] == []
