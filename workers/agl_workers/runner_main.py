"""Runners as processes: ``agl-streams worker MODULE:AGENT``."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from functools import partial

from agl_streams.config import Settings
from agl_streams.connect import connect
from agl_streams.logger import get_logger
from agl_streams.process import run_until_stopped
from agl_workers.agent_loading import load_agent
from agl_workers.runner import DRAIN_S
from agl_workers.runner_process import RunnerPlan, run_runner
from agl_workers.supervisor import Supervisor

_log = get_logger()


def run(
    settings: Settings,
    *,
    agent: str,
    processes: int = 1,
    concurrency: int = 1,
    lease_seconds: float | None = None,
    max_rollouts: int | None = None,
    worker_id: str | None = None,
    drain_seconds: float = DRAIN_S,
    server: str | None = None,
) -> None:
    """Run an agent on rollouts until SIGTERM or SIGINT; then finish what is held, within the drain time.

    Args:
        agent: ``MODULE:AGENT``.
        processes: one runs in this process, several in children of it.
        lease_seconds: how soon a dead runner is noticed; None takes ``settings.lease_seconds``.
        max_rollouts: end after so many, in each process.
        server: URL of an HTTP server to work for; None works beside the store of the settings.
        worker_id: the worker's name; with several processes each adds its number. None: host name and process id.

    Raises:
        ConfigError: the agent cannot be loaded.
        AglError: the store cannot be used.
    """
    base = worker_id or f"{socket.gethostname()}-{os.getpid()}"
    names = [base] if processes == 1 else [f"{base}-{number}" for number in range(1, processes + 1)]
    plans = [
        RunnerPlan(
            settings=settings,
            agent=agent,
            worker_id=name,
            concurrency=concurrency,
            lease_seconds=lease_seconds,
            max_rollouts=max_rollouts,
            drain_seconds=drain_seconds,
            server=server,
        )
        for name in names
    ]
    if len(plans) == 1:
        run_runner(plans[0])
    else:
        load_agent(agent)  # what is wrong with it should end this process, not each child again and again
        run_until_stopped(partial(_supervise, settings, server, plans))


async def _supervise(settings: Settings, server: str | None, plans: Sequence[RunnerPlan], stop: asyncio.Event) -> None:
    async with await connect(server, settings=settings):
        pass  # as above: a store that cannot be used should end this process
    _log.info("supervisor_started", processes=len(plans))
    await Supervisor(plans).run(stop)
    _log.info("supervisor_stopped")
