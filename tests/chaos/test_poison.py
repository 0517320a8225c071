"""A rollout that kills whoever runs it is given up with its reason, and the rest of the queue goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from agl_streams.config import Settings
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from tests.chaos.agents import executions
from tests.support.chaos_processes import AGENTS, Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.processes import ProcessGroup
from tests.workers.support import start_cli

DELIVERIES = 3


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with the usual number of deliveries."""
    return settings.model_copy(update={"max_deliveries": DELIVERIES})


async def test_a_poison_rollout_is_given_up(
    store: StreamStore, settings: Settings, crew: Crew, processes: ProcessGroup, tmp_path: Path
) -> None:
    """Each runner process that runs it dies; after three of them it is on the dead stream, and all others are done."""
    crew.aggregator()
    tasks = [{"directory": str(tmp_path), "poison": number == 3} for number in range(12)]
    ids = [(await store.enqueue_rollout(task)).rollout_id for task in tasks]
    poison = ids[3]
    workers = start_cli(processes, settings, "worker", f"{AGENTS}:kill_if_poison", "--processes", "2", name="workers")

    await wait_until_done(store, ids)

    dead = cast("Any", await store.connection.execute("XRANGE", store.functions(0).keys.dead, "-", "+"))
    assert [fields for _, fields in dead] == [[b"rollout", poison.encode(), b"reason", b"worker_lost"]]
    given_up = await store.get_rollout_by_id(poison)
    assert given_up is not None
    assert (given_up.status, (given_up.metadata or {})[REASON]) == ("failed", "worker_lost")
    assert executions(tmp_path, poison) == DELIVERIES
    others = [one.status for one in await store.query_rollouts() if one.rollout_id != poison]
    assert others == ["succeeded"] * 11
    assert workers.running
    await check_invariants(store, ids)
