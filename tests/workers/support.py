"""Steps that tests of the processes share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from agl_streams import semconv
from agl_streams.config import Settings, child_environment
from agl_streams.models import Attempt, Rollout
from agl_streams.store import StreamStore
from agl_workers.outcome import Outcome
from agl_workers.runner import Runner
from tests.support.processes import Process, ProcessGroup

LEASE_S = 1.0
WORKER = "worker-1"


@asynccontextmanager
async def running(run: Callable[[asyncio.Event], Awaitable[None]]) -> AsyncGenerator[asyncio.Event]:
    """Something that runs until its event is set, which the end of the block does; its error is raised there."""
    stop = asyncio.Event()
    task = asyncio.ensure_future(run(stop))
    try:
        yield stop
    finally:
        stop.set()
        await task


async def work(store: StreamStore, agent: Callable[..., Any], *tasks: Any) -> tuple[list[Rollout], list[Outcome]]:
    """Put tasks on the queue, work on all at once; the rollouts as they are then, and what became of their attempts."""
    enqueued = [await store.enqueue_rollout(task) for task in tasks]
    outcomes = await Runner(store, agent, worker_id=WORKER, concurrency=len(tasks)).run_once()
    return [await get(store, one.rollout_id) for one in enqueued], outcomes


async def get(store: StreamStore, rollout_id: str) -> Rollout:
    """A rollout that exists."""
    rollout = await store.get_rollout_by_id(rollout_id)
    assert rollout is not None
    return rollout


async def attempts_of(store: StreamStore, rollout_id: str) -> list[Attempt]:
    """All attempts of a rollout, oldest first."""
    return list(await store.query_attempts(rollout_id))


def reason_of(attempt: Attempt) -> str | None:
    """Why an attempt ended as it did."""
    return (attempt.metadata or {}).get(semconv.REASON)


def start_cli(processes: ProcessGroup, settings: Settings, *args: str, name: str) -> Process:
    """The command line as a process of its own, with these settings."""
    return processes.start(sys.executable, "-m", "agl_streams.cli", *args, name=name, env=child_environment(settings))


def events_of(process: Process, event: str) -> list[dict[str, Any]]:
    """The log events of that name that a process has written so far."""
    lines = (line for line in process.output.splitlines() if line.startswith("{") and line.endswith("}"))
    return [found for line in lines if (found := orjson.loads(line))["event"] == event]
