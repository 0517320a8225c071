"""How long a rollout may take is its own affair; how soon its dead runner is noticed is the lease's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from agl_streams.config import Settings
from agl_streams.models import Attempt, RolloutConfig
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from tests.chaos.agents import executions, has_begun
from tests.support.chaos import feed
from tests.support.chaos_processes import Crew
from tests.support.invariants import PATIENCE_S, check_invariants, wait_until_done
from tests.support.waiting import until

SHORT_S = 1.0
LONG_S = 100 * SHORT_S  # as 3 s and 300 s: far longer than any test waits
LONGER_LEASE_S = 3.0  # so that the short rollout's own limit comes first
LEASES = 5
US_PER_S = 1_000_000


def how_it_ended(attempt: Attempt) -> tuple[str, str | None]:
    """Status and reason of an attempt."""
    return attempt.status, (attempt.metadata or {}).get(REASON)


async def test_short_and_long_rollouts_follow_their_own_limits(
    store: StreamStore, settings: Settings, tmp_path: Path, crew: Crew
) -> None:
    """A killed runner held a short rollout and a long one: one is timed out after its limit, the other found lost."""
    assert LONG_S > PATIENCE_S
    crew.settings = settings.model_copy(update={"lease_seconds": LONGER_LEASE_S})
    crew.aggregator()
    runner = crew.runner("hang_the_first_time", concurrency=2)
    task = {"directory": str(tmp_path)}
    short_rules = RolloutConfig(timeout_seconds=SHORT_S, max_attempts=2, retry_condition=["timeout"])
    long = (await store.enqueue_rollout(task, config=RolloutConfig(timeout_seconds=LONG_S))).rollout_id
    short = (await store.enqueue_rollout(task, config=short_rules)).rollout_id
    await until(lambda: has_begun(tmp_path, short, 1) and has_begun(tmp_path, long, 1), what="both attempts")
    runner.kill()
    crew.runner("hang_the_first_time", concurrency=2)

    await wait_until_done(store, [short, long])

    first_short, second_short = await store.query_attempts(short)
    first_long, second_long = await store.query_attempts(long)
    assert how_it_ended(first_short) == ("timeout", "timeout")
    assert how_it_ended(first_long) == ("unresponsive", "worker_lost")
    assert (second_short.status, second_long.status) == ("succeeded", "succeeded")
    assert (first_short.end_time or 0) - first_short.start_time > SHORT_S
    assert second_short.start_time < second_long.start_time
    await check_invariants(store, [short, long])


async def test_a_long_rollout_of_a_living_runner_runs_once(store: StreamStore, crew: Crew, tmp_path: Path) -> None:
    """A rollout that takes five times its lease is run once, in one attempt, while its runner renews."""
    crew.aggregator()
    crew.runner("wait_for_file")  # with free places: it would take the rollout again at once
    rollout_id = (await store.enqueue_rollout({"directory": str(tmp_path)})).rollout_id
    await until(lambda: has_begun(tmp_path, rollout_id, 1), what="the attempt")
    leases = store.functions(0).keys.payload("live:leases")

    async def lease_ends_at_s() -> float:
        (ends,) = cast("Any", await store.connection.execute("HVALS", leases))
        return int(ends) / US_PER_S

    enough_s = await lease_ends_at_s() + LEASES * store.settings.lease_seconds

    async def outlived() -> bool:
        return await lease_ends_at_s() > enough_s

    await until(outlived, timeout_s=PATIENCE_S, what=f"{LEASES} leases")
    (tmp_path / "go").touch()
    await wait_until_done(store, [rollout_id])

    (attempt,) = await store.query_attempts(rollout_id)
    assert how_it_ended(attempt) == ("succeeded", None)
    assert executions(tmp_path, rollout_id) == 1
    await check_invariants(store, [rollout_id])


async def test_work_that_came_before_any_worker_is_done(store: StreamStore, crew: Crew) -> None:
    """Rollouts that were enqueued before the first runner ever started are all executed."""
    ids = await feed(store, 30)
    crew.aggregator()
    crew.runner("some_work")
    await wait_until_done(store, ids)
    await check_invariants(store, ids)
