"""Runners as real processes: signalled, killed, and killed with their supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agl_streams import Rollout, StreamStore, rollout
from agl_streams.config import Settings, child_environment
from agl_workers.runner import Runner
from tests.support.processes import Process, ProcessGroup, is_alive
from tests.support.waiting import until
from tests.workers.support import attempts_of, events_of, get, reason_of, running, start_cli

AGENTS = "tests.workers.agents"


def start_worker(processes: ProcessGroup, settings: Settings, agent: str, *args: str, name: str = "worker") -> Process:
    """A worker process."""
    return start_cli(processes, settings, "worker", f"{AGENTS}:{agent}", "--worker-id", name, *args, name=name)


def begun(directory: Path) -> list[str]:
    """Which attempts have begun: rollout id and number."""
    return [path.name.removeprefix("begun-") for path in directory.glob("begun-*")]


def let_go(directory: Path) -> None:
    """Let the agents that wait for it end."""
    (directory / "go").touch()


async def enqueue(store: StreamStore, directory: Path) -> Rollout:
    """A rollout whose agent signals through a directory."""
    return await store.enqueue_rollout({"directory": str(directory)})


async def pids(store: StreamStore) -> dict[str, int]:
    """The process of each worker, as far as their heartbeats have told."""
    workers = await store.query_workers()
    return {worker.worker_id: worker.heartbeat_stats["pid"] for worker in workers if worker.heartbeat_stats}


async def test_sigterm_lets_a_runner_finish_what_it_holds(
    store: StreamStore, settings: Settings, processes: ProcessGroup, tmp_path: Path
) -> None:
    """After SIGTERM a runner takes no more, its agent comes to its end and is reported, and the status is 0."""
    held = await enqueue(store, tmp_path)
    worker = start_worker(processes, settings, "wait_for_file")
    await until(lambda: begun(tmp_path), what="the agent")
    worker.signal(signal.SIGTERM)
    worker.printed("runner_draining")
    later = await enqueue(store, tmp_path)
    let_go(tmp_path)
    assert worker.wait() == 0
    assert (await get(store, held.rollout_id)).status == "succeeded"
    assert (await get(store, later.rollout_id)).status == "queuing"
    assert len(await attempts_of(store, held.rollout_id)) == 1


@pytest.mark.usefixtures("watchdog")
@pytest.mark.leaves_pending  # a killed process cannot leave its consumer group
async def test_a_killed_runner_is_replaced_by_another(
    store: StreamStore, settings: Settings, processes: ProcessGroup, tmp_path: Path
) -> None:
    """When a runner is killed its attempt is lost with its lease, and another runner does the rollout."""
    enqueued = await enqueue(store, tmp_path)
    worker = start_worker(processes, settings, "hang_the_first_time", name="killed")
    await until(lambda: begun(tmp_path), what="the agent")
    worker.kill()

    @rollout
    async def other(task: Any) -> float:
        return 1.0

    async with running(Runner(store, other, worker_id="other").run):
        (done,) = await store.wait_for_rollouts(rollout_ids=[enqueued.rollout_id])
    assert done.status == "succeeded"
    first, second = await attempts_of(store, enqueued.rollout_id)
    assert (first.status, reason_of(first), first.worker_id) == ("unresponsive", "worker_lost", "killed")
    assert (second.status, second.worker_id) == ("succeeded", "other")
    assert await store.finished_counts() == {enqueued.rollout_id: 1}


async def test_sigterm_to_a_supervisor_drains_all(
    store: StreamStore, settings: Settings, processes: ProcessGroup, tmp_path: Path
) -> None:
    """A supervisor that gets SIGTERM lets each of its runners finish what it holds, and ends after them."""
    ids = [(await enqueue(store, tmp_path)).rollout_id for _ in range(2)]
    supervisor = start_worker(processes, settings, "wait_for_file", "--processes", "2")
    await until(lambda: len(begun(tmp_path)) == 2, what="both agents")
    supervisor.signal(signal.SIGTERM)
    await until(lambda: len(events_of(supervisor, "runner_draining")) == 2, what="both runners to drain")
    let_go(tmp_path)
    assert supervisor.wait() == 0
    assert [(await get(store, rollout_id)).status for rollout_id in ids] == ["succeeded", "succeeded"]
    workers = {(await attempts_of(store, rollout_id))[0].worker_id for rollout_id in ids}
    assert workers == {"worker-1", "worker-2"}
    assert len(events_of(supervisor, "runner_stopped")) == 2


@pytest.mark.leaves_pending  # a killed process cannot leave its consumer group
async def test_runners_are_restarted_and_never_orphaned(
    store: StreamStore, settings: Settings, processes: ProcessGroup
) -> None:
    """A runner that is killed is started again; when the supervisor is killed its runners end by themselves."""
    supervisor = start_worker(processes, settings, "wait_for_file", "--processes", "2")

    async def two() -> bool:
        return len(await pids(store)) == 2

    await until(two, what="two runners")
    before = await pids(store)
    os.kill(before["worker-1"], signal.SIGKILL)
    supervisor.printed("runner_died")

    async def replaced() -> bool:
        return (await pids(store))["worker-1"] != before["worker-1"]

    await until(replaced, what="another runner of the same name")
    after = await pids(store)
    assert after["worker-2"] == before["worker-2"]
    supervisor.kill()
    await until(lambda: not any(map(is_alive, after.values())), what="both runners to end")
    supervisor.printed("parent_died")


HANGING = """
from agl_streams.config import load_settings
from agl_streams.process import run_until_stopped
from agl_streams.telemetry import configure_logging
from agl_workers.runner_process import RunnerPlan
from agl_workers.supervisor import Supervisor

settings = load_settings()
configure_logging(settings)
plan = RunnerPlan(
    settings=settings, agent="tests.workers.agents:block_for_ever", worker_id="worker", concurrency=1,
    lease_seconds=None, max_rollouts=None, drain_seconds=0.1, margin_s=0.1,
)
run_until_stopped(Supervisor([plan]).run)
"""


@pytest.mark.leaves_pending  # a killed process cannot leave its consumer group
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_runner_that_hangs_is_killed(
    store: StreamStore, settings: Settings, processes: ProcessGroup, tmp_path: Path, number: signal.Signals
) -> None:
    """A runner whose event loop an agent blocks for ever outlives neither the stop nor the death of its supervisor."""
    await enqueue(store, tmp_path)
    supervisor = processes.python(HANGING, name="supervisor", env=child_environment(settings))
    await until(lambda: begun(tmp_path), what="the agent")
    pid = (await until(lambda: pids(store), what="the runner's heartbeat"))["worker"]
    supervisor.signal(number)
    await until(lambda: not is_alive(pid), what="the runner to be killed")
    assert supervisor.wait() == (0 if number is signal.SIGTERM else -number)


def test_what_is_no_agent_ends_the_command(settings: Settings, processes: ProcessGroup) -> None:
    """A worker command whose agent cannot be used ends with one line and status 2, before it starts any process."""
    worker = start_worker(processes, settings, "not_an_agent", "--processes", "2")
    assert worker.wait() == 2
    assert "must be a function" in worker.output
    assert len(worker.output.splitlines()) == 1
