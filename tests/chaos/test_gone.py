"""Runners that are gone: what is left of them goes as well, and takes no rollout along."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agl_streams.config import Settings
from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.chaos import feed, tally
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.waiting import until

RUNNERS = 6
ROLLOUTS = 60
IDLE_S = 2.0  # a day, for this test: longer than a lease, so that what a killed runner held is back in the queue


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """As for any chaos, and workers are forgotten soon."""
    return settings.model_copy(update={"worker_idle_seconds": IDLE_S})


async def consumers(store: StreamStore) -> set[str]:
    """The names of the queue's consumers."""
    reply = await store.connection.execute("XINFO", "CONSUMERS", store.functions(0).keys.tasks, "runners")
    return {flat[1].decode() for flat in cast("Any", reply)} - {"claim"}


@pytest.mark.timeout(300)
async def test_killed_runners_are_forgotten_and_lose_nothing(store: StreamStore, crew: Crew) -> None:
    """Workers and consumers of runners killed with their hands full go, those of the living stay, all work is done."""
    crew.aggregator()
    victims = [crew.runner("some_work") for _ in range(RUNNERS)]
    ids = await feed(store, ROLLOUTS)
    for victim in victims:
        await until(lambda name=victim.name: store.get_worker_by_id(name), what=f"{victim.name} to show itself")
        victim.kill()
    survivor = crew.runner("some_work")
    await wait_until_done(store, ids)

    async def only_the_survivor() -> bool:
        names = {worker.worker_id for worker in await store.query_workers()}
        return names == {survivor.name} and await consumers(store) == {survivor.name}

    await until(only_the_survivor, what="the killed runners to be forgotten")
    assert survivor.terminate() == 0
    assert (await tally(store))["worker_retired"] >= RUNNERS
    await check_invariants(store, ids, spans=SPANS)
