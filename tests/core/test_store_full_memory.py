"""A server at its `maxmemory`: intake stops, and everything that finishes, frees or answers goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agl_streams.config import Settings
from agl_streams.errors import OutOfMemory, StoreUnavailable
from agl_streams.models import RolloutConfig
from agl_streams.store import StreamStore
from tests.support.servers import ALL_BINARIES, Server, Servers
from tests.support.spans import reward
from tests.support.timeline import Timeline


@pytest.fixture(params=ALL_BINARIES)
def server(servers: Servers, request: pytest.FixtureRequest) -> Server:
    """A server of each kind."""
    return servers.start(request.param)


@pytest.fixture
async def full(server: Server, settings: Settings) -> AsyncGenerator[StreamStore]:
    """A store whose server became full while rollouts ``running``, ``silent``, ``doomed`` and ``queued`` were there."""
    async with await StreamStore.connect(server.url, settings=settings) as store:
        time = await Timeline(store).watched()
        limited = RolloutConfig(timeout_seconds=5.0, max_attempts=2, retry_condition=["timeout"])
        for rollout_id, config in (("running", None), ("doomed", None), ("silent", limited), ("queued", None)):
            await store.enqueue_rollout("x", config=config, rollout_id=rollout_id)
        for _ in range(3):
            await time.take(worker_id="w", lease_seconds=30.0)
        await store.add_span(reward(1, 0.5, **await _ids(store, "running")))
        server.execute("CONFIG", "SET", "maxmemory", 1)
        yield store
        server.execute("CONFIG", "SET", "maxmemory", 0)


async def _ids(store: StreamStore, rollout_id: str) -> dict[str, Any]:
    attempt = await store.get_latest_attempt(rollout_id)
    assert attempt is not None
    return {"rollout_id": rollout_id, "attempt_id": attempt.attempt_id}


async def test_intake_stops(full: StreamStore) -> None:
    """What would take memory is refused as OutOfMemory, which is a StoreUnavailable, and changes nothing."""
    ids = await _ids(full, "running")
    for call in (
        lambda: full.enqueue_rollout("y"),
        lambda: full.start_rollout("y"),
        lambda: full.dequeue_rollout("w"),
        lambda: full.start_attempt("queued"),
        lambda: full.add_span(reward(2, 1.0, **ids)),
        lambda: full.admit_call(ids["rollout_id"], ids["attempt_id"]),
        lambda: full.add_resources({}),
    ):
        with pytest.raises(OutOfMemory, match="maxmemory"):
            await call()
    assert issubclass(OutOfMemory, StoreUnavailable)
    assert (await full.query_rollouts()).total == 4
    assert (await full.query_spans("running")).total == 1


async def test_what_runs_can_end(full: StreamStore) -> None:
    """Reports, renewals, heartbeats, cancels and updates are taken; waiters hear of them."""
    ids = await _ids(full, "running")
    assert await full.renew_attempt(ids["rollout_id"], ids["attempt_id"]) == "renewed"
    await full.update_worker("w", {"cpu": 1})
    await full.update_attempt("running", "latest", "succeeded", metadata={"a": 1})
    await full.cancel_rollout("doomed", "no memory")
    await full.update_rollout("queued", status="failed")
    found = await full.wait_for_rollouts(rollout_ids=["running", "doomed", "queued"], timeout=20)
    assert [one.status for one in found] == ["succeeded", "cancelled", "failed"]


async def test_time_goes_on(full: StreamStore) -> None:
    """The watchdog ends what is overdue and queues it again, and the aggregator adds up."""
    functions = full.functions(0)
    assert functions.clock_us is not None
    later = functions.clock_us() + 6_000_000
    functions.clock_us = lambda: later
    assert (await full.expire_once(0)).ended == 1
    rollout = await full.get_rollout_by_id("silent")
    assert rollout is not None
    assert rollout.status == "requeuing"
    await full.settle()
    assert (await full.rollout_sums("running")).reward == 0.5


async def test_it_takes_work_again_when_there_is_memory(full: StreamStore, server: Server) -> None:
    """Nothing of what was refused is left behind, and the queue is whole."""
    with pytest.raises(OutOfMemory):
        await full.dequeue_rollout("w")
    server.execute("CONFIG", "SET", "maxmemory", 0)
    taken = await full.dequeue_rollout("w")
    assert taken is not None
    assert (taken.rollout_id, taken.attempt.sequence_id) == ("queued", 1)
