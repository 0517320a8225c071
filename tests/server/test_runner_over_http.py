"""A runner that knows the store only as an HTTP server: the same agent, the same results."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agl_streams.agent import emit_reward, rollout
from agl_streams.client import StoreClient
from agl_streams.config import Settings, child_environment
from agl_streams.connect import Store, connect
from agl_streams.models import EnqueueRolloutRequest
from agl_streams.store import StreamStore
from agl_workers.runner import Runner
from tests.support.processes import ProcessGroup
from tests.support.waiting import until

AGENT = """
from agl_streams.agent import emit_reward, rollout

@rollout
def solve(task):
    emit_reward(task / 2)
"""


@rollout
async def halve(task: int) -> None:
    """Rewards half of the task."""
    emit_reward(task / 2)


async def test_a_runner_does_not_care_which_store_it_has(
    server_url: str, settings: Settings, store: StreamStore
) -> None:
    """Beside the engine and behind a server the same runner does the same work, with the same results."""
    for number, url in enumerate((settings.redis_url, server_url), start=1):
        either: Store
        async with await connect(url, settings=settings) as either:
            made = await either.enqueue_many_rollouts([EnqueueRolloutRequest(input=task) for task in range(4)])
            runner = Runner(either, halve, worker_id=f"w{number}", concurrency=2, max_rollouts=4)
            await runner.run(asyncio.Event())
            ids = [one.rollout_id for one in made]
            done = await either.wait_for_rollouts(rollout_ids=ids, timeout=10)
            assert [one.status for one in done] == ["succeeded"] * 4
            await either.settle()
            assert [(await either.rollout_sums(one)).reward for one in ids] == [0.0, 0.5, 1.0, 1.5]
            worker = await either.get_worker_by_id(f"w{number}")
            assert worker is not None
            assert worker.status == "idle"


async def test_a_waiting_runner_stops_at_once(server_url: str, settings: Settings, store: StreamStore) -> None:
    """A runner that waits at the server for work ends when it is told to, and takes nothing more."""
    async with StoreClient(server_url, settings) as client:
        stop = asyncio.Event()
        running = asyncio.create_task(Runner(client, halve, worker_id="w").run(stop))
        await store.enqueue_rollout(3)
        await until(lambda: finished(store, 1), what="the first rollout")
        stop.set()
        await running
        await store.enqueue_rollout(4)
        assert await store.dequeue_rollout() is not None


async def finished(store: StreamStore, count: int) -> bool:
    return (await store.query_rollouts(status_in=["succeeded"])).total == count


async def test_worker_processes_work_for_a_server(
    processes: ProcessGroup, server_url: str, settings: Settings, store: StreamStore, tmp_path: Path
) -> None:
    """`agl-streams worker --server URL` needs no Redis: two processes do all rollouts of the server."""
    (tmp_path / "halving.py").write_text(AGENT)
    elsewhere = child_environment(settings.model_copy(update={"redis_url": "redis://localhost:1"}))
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=task) for task in range(6)])
    worker = processes.module(
        "agl_streams.cli", "worker", "halving:solve", "--server", server_url, "--processes", "2",
        env={**elsewhere, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    await until(lambda: finished(store, 6), what="all rollouts", timeout_s=40)
    assert await asyncio.to_thread(worker.terminate) == 0
