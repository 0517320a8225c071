"""An attempt is its runner's for as long as its lease is kept, and not a moment longer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from agl_streams import AttemptContext, StreamStore, connection, emit_message, rollout
from agl_streams.config import Settings
from agl_streams.keys import ShardKeys
from agl_workers.attempt_run import AttemptRun
from agl_workers.outcome import Outcome
from agl_workers.runner import Runner
from tests.support.processes import ProcessGroup
from tests.support.servers import Servers
from tests.support.waiting import turns, until
from tests.workers.agents import wait_for_renewals
from tests.workers.support import LEASE_S, WORKER, attempts_of, get, running, start_cli

ROOMY = 2  # a runner with a free place would take the rollout again at once, if its lease were lost


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gives an absent server up at once, so that those above it must be patient."""
    monkeypatch.setattr(connection, "RETRY_FOR_S", 0.05)


def leases_key(namespace: str) -> str:
    """The hash of leases of the first shard."""
    return ShardKeys(namespace, 0).prefix + "live:leases"


@pytest.mark.usefixtures("watchdog")
async def test_a_long_plain_agent_keeps_its_lease(store: StreamStore, redis_url: str, namespace: str) -> None:
    """A plain agent that blocks its thread for three leases is run once, in one attempt."""
    runs: list[str] = []

    @rollout
    def long(task: str, context: AttemptContext) -> None:
        runs.append(context.attempt.attempt_id)
        wait_for_renewals(redis_url, leases_key(namespace), context, LEASE_S)

    enqueued = await store.enqueue_rollout("task")
    async with running(Runner(store, long, worker_id=WORKER, concurrency=ROOMY).run):
        await store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id])
    (attempt,) = await attempts_of(store, enqueued.rollout_id)
    assert (attempt.status, runs) == ("succeeded", [attempt.attempt_id])


@pytest.mark.usefixtures("watchdog")
async def test_an_async_agent_that_blocks_its_loop_keeps_its_lease(
    store: StreamStore, settings: Settings, processes: ProcessGroup, tmp_path: Any
) -> None:
    """An async agent that blocks the runner's event loop for three leases is run once, in one attempt."""
    worker = start_cli(
        processes, settings, "worker", "tests.workers.agents:block_the_loop", "--concurrency", str(ROOMY), name="worker"
    )
    worker.printed("runner_started")
    task = {"directory": str(tmp_path), "leases": leases_key(settings.namespace), "lease_s": LEASE_S}
    enqueued = await store.enqueue_rollout(task)
    await store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id])
    assert worker.terminate() == 0
    (attempt,) = await attempts_of(store, enqueued.rollout_id)
    assert attempt.status == "succeeded"
    assert [path.name for path in tmp_path.glob("begun-*")] == [f"begun-{enqueued.rollout_id}-1"]


async def test_an_agent_that_was_superseded_is_stopped(store: StreamStore) -> None:
    """When another attempt takes the rollout over, the agent of the first is cancelled and nothing is reported."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @rollout
    async def endless(task: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    enqueued = await store.enqueue_rollout("task")
    working = asyncio.ensure_future(Runner(store, endless, worker_id=WORKER).run_once())
    await begun.wait()
    second = await store.start_attempt(enqueued.rollout_id)
    assert await working == [Outcome.SUPERSEDED]
    assert cancelled.is_set()
    first, newest = await attempts_of(store, enqueued.rollout_id)
    assert (first.status, newest.attempt_id) == ("preparing", second.attempt.attempt_id)


async def test_the_result_of_a_superseded_plain_agent_is_dropped(store: StreamStore) -> None:
    """A thread cannot be stopped, but what it emits and returns after its attempt was taken away is not stored."""
    begun, may_end, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @rollout
    def stubborn(task: str) -> float:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()
        emit_message("too late")
        ended.set()
        return 1.0

    enqueued = await store.enqueue_rollout("task")
    working = asyncio.ensure_future(Runner(store, stubborn, worker_id=WORKER).run_once())
    await begun.wait()
    await store.cancel_rollout(enqueued.rollout_id, "not needed")
    assert await working == [Outcome.SUPERSEDED]
    may_end.set()
    await until(ended.is_set, what="the end of the agent")
    assert (await get(store, enqueued.rollout_id)).status == "cancelled"
    assert len(await store.query_spans(enqueued.rollout_id)) == 0


async def _returns_anyway() -> float:
    return 1.0


async def _raises_something_else() -> float:
    raise RuntimeError("cancelled")


@pytest.mark.parametrize("then", [_returns_anyway, _raises_something_else])
async def test_an_agent_cannot_talk_its_way_out(store: StreamStore, then: Callable[[], Any]) -> None:
    """An agent that answers its cancellation with a result or an error is given up all the same."""
    begun = asyncio.Event()

    @rollout
    async def denying(task: str) -> float:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            emit_message("I go on")
        return await then()

    enqueued = await store.enqueue_rollout("task")
    working = asyncio.ensure_future(Runner(store, denying, worker_id=WORKER).run_once())
    await begun.wait()
    await store.update_attempt(enqueued.rollout_id, "latest", "unresponsive")
    assert await working == [Outcome.SUPERSEDED]
    (attempt,) = await attempts_of(store, enqueued.rollout_id)
    assert attempt.status == "unresponsive"
    assert len(await store.query_spans(enqueued.rollout_id)) == 0


async def test_a_renewal_that_meets_the_report_does_not_take_it_back(
    store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that learns of the end through the runner's own report does not make it a lost attempt."""

    @rollout
    async def quick(task: str) -> float:
        return 1.0

    enqueued = await store.enqueue_rollout("task")
    taken = await store.dequeue_rollout(WORKER)
    assert taken is not None
    run = AttemptRun(store, quick, taken)
    report = store.update_attempt

    async def report_and_renew(*args: Any, **kwargs: Any) -> Any:
        attempt = await report(*args, **kwargs)
        asyncio.get_running_loop().call_soon(run.lose, await store.renew_attempt(*run.ids))
        await turns(2)
        return attempt

    monkeypatch.setattr(store, "update_attempt", report_and_renew)
    assert await asyncio.ensure_future(run.execute()) == Outcome.SUCCEEDED
    assert (await get(store, enqueued.rollout_id)).status == "succeeded"


@pytest.mark.parametrize(("result", "delayed"), [(1.0, "spans_delayed"), (None, "report_delayed")])
async def test_a_result_outlives_an_absence_of_the_store(
    servers: Servers, settings: Settings, impatient: None, result: float | None, delayed: str
) -> None:
    """An agent that ends while the server is away has its spans and its report stored once the server is back."""
    server = servers.start(config={"appendonly": "yes", "appendfsync": "always"})
    settings = settings.model_copy(update={"redis_url": server.url})
    begun, may_end = asyncio.Event(), asyncio.Event()

    @rollout
    async def waits(task: str) -> float | None:
        begun.set()
        await may_end.wait()
        return result

    async with await StreamStore.connect(settings=settings) as store:
        enqueued = await store.enqueue_rollout("task")
        working = asyncio.ensure_future(Runner(store, waits, worker_id=WORKER).run_once())
        await begun.wait()
        server.kill()
        with capture_logs() as logs:
            may_end.set()
            await until(lambda: any(log["event"] == delayed for log in logs), what=delayed)
        server.start()
        assert await working == [Outcome.SUCCEEDED]
        (attempt,) = await attempts_of(store, enqueued.rollout_id)
        assert attempt.status == "succeeded"
        assert len(await store.query_spans(enqueued.rollout_id)) == (result is not None)


async def test_a_runner_can_be_stopped_while_its_server_is_away(
    servers: Servers, settings: Settings, impatient: None
) -> None:
    """A runner that is stopped while its server is away says what it leaves behind, and ends."""
    server = servers.start()
    settings = settings.model_copy(update={"redis_url": server.url})
    begun, may_end = asyncio.Event(), asyncio.Event()

    @rollout
    async def waits(task: str) -> None:
        begun.set()
        await may_end.wait()

    async with await StreamStore.connect(settings=settings) as store:
        await store.enqueue_rollout("task")
        with capture_logs() as logs:
            async with running(Runner(store, waits, worker_id=WORKER, concurrency=ROOMY, drain_seconds=0.1).run):
                await begun.wait()
                server.kill()
                may_end.set()
                await until(lambda: any(log["event"] == "report_delayed" for log in logs), what="a delayed report")
        left = [log for log in logs if log["event"] == "attempt_left_to_its_lease"]
        assert [log["outcome"] for log in left] == ["unreported"]
        assert any(log["event"] == "runner_left_without_saying" for log in logs)


async def test_a_rollout_that_vanished_stops_its_agent(store: StreamStore) -> None:
    """When a failover has lost the begin, the first span that finds no attempt stops the agent."""
    begun, may_emit = asyncio.Event(), asyncio.Event()

    @rollout
    async def chatty(task: str) -> None:
        begun.set()
        await may_emit.wait()
        emit_message("anybody there?")
        await asyncio.Event().wait()

    enqueued = await store.enqueue_rollout("task")
    working = asyncio.ensure_future(Runner(store, chatty, worker_id=WORKER, lease_seconds=600).run_once())
    await begun.wait()
    attempt = await store.get_latest_attempt(enqueued.rollout_id)
    assert attempt is not None
    prefix = store.functions(0).keys.prefix
    await store.connection.execute("DEL", f"{prefix}attempt:{enqueued.rollout_id}:{attempt.attempt_id}")
    may_emit.set()
    assert await working == [Outcome.SUPERSEDED]


async def test_a_full_server_gets_its_rollouts_back(servers: Servers, settings: Settings) -> None:
    """A rollout that a full server does not let begin is not used up by trying, and is done once there is room."""
    server = servers.start()
    settings = settings.model_copy(update={"redis_url": server.url, "max_deliveries": 1})

    @rollout
    async def quick(task: str) -> float:
        return 1.0

    async with await StreamStore.connect(settings=settings) as store:
        enqueued = await store.enqueue_rollout("task")
        server.execute("CONFIG", "SET", "maxmemory", "1")
        log = store.functions(0).keys.log
        async with running(Runner(store, quick, worker_id=WORKER).run):

            async def given_back() -> bool:
                entries: Any = await store.connection.execute("XRANGE", log, "-", "+")
                return sum(b"redelivered" in fields for _, fields in entries) >= 3

            await until(given_back, what="a rollout that is given back")
            server.execute("CONFIG", "SET", "maxmemory", "0")
            (done,) = await store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id])
        assert done.status == "succeeded"
