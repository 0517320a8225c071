"""Runners as real processes: signalled, killed, and killed with their supervisor."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agl_streams import Rollout, StreamStore, rollout
from agl_streams.config import Settings
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

    async def pids() -> dict[str, int]:
        workers = await store.query_workers()
        return {worker.worker_id: (worker.heartbeat_stats or {})["pid"] for worker in workers}

    async def two() -> dict[str, int] | None:
        found = await pids()
        return found if len(found) == 2 else None

    before = await until(two, what="two runners")
    assert before is not None
    os.kill(before["worker-1"], signal.SIGKILL)
    supervisor.printed("runner_died")

    async def replaced() -> bool:
        return (await pids())["worker-1"] != before["worker-1"]

    await until(replaced, what="another runner of the same name")
    after = await pids()
    assert after["worker-2"] == before["worker-2"]
    supervisor.kill()
    await until(lambda: not any(map(is_alive, after.values())), what="both runners to end")
    supervisor.printed("supervisor_died")


@pytest.mark.parametrize(
    ("agent", "complaint"),
    [
        ("not_an_agent", "must be a function"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_what_is_no_agent_ends_the_command(
    settings: Settings, processes: ProcessGroup, agent: str, complaint: str
) -> None:
    """A worker command whose agent cannot be used, of one or several processes, ends with one line and status 2."""
    several = start_worker(processes, settings, agent, "--processes", "2")
    assert several.wait() == 2
    assert complaint in several.output
    assert len(several.output.splitlines()) == 1
