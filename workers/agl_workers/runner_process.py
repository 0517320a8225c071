"""One runner as a process, alone or as a child of the supervisor."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from agl_streams.agent import Agent
from agl_streams.config import Settings
from agl_streams.connect import connect
from agl_streams.logger import get_logger
from agl_streams.parts import follow_parent
from agl_streams.process import run_until_stopped
from agl_streams.telemetry import configure_logging
from agl_workers.agent_loading import load_agent
from agl_workers.runner import Runner

STOP_MARGIN_S: Final = 5.0  # an agent's last words, and the good-byes to the server

_log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPlan:
    """What a runner process is to do; it can be pickled.

    Attributes:
        agent: ``MODULE:AGENT``.
        server: URL of an HTTP server to work for; None works beside the store of the settings.
        worker_id: unique among living runners.
        margin_s: beyond the drain time, how long the process may take to end after SIGTERM. One that takes longer
            hangs, in an agent that blocks the event loop.
    """

    settings: Settings
    agent: str
    worker_id: str
    concurrency: int
    lease_seconds: float | None
    max_rollouts: int | None
    drain_seconds: float
    margin_s: float = STOP_MARGIN_S
    server: str | None = None

    @property
    def longest_stop_s(self) -> float:
        """How long the process may take to end after SIGTERM, in seconds."""
        return self.drain_seconds + self.margin_s


def run_runner(plan: RunnerPlan) -> None:
    """Run a runner in this process until SIGTERM or SIGINT.

    Raises:
        ConfigError: the agent cannot be loaded.
        AglError: the store cannot be used.
    """
    agent = load_agent(plan.agent)
    run_until_stopped(partial(_run, plan, agent))


def run_child(plan: RunnerPlan) -> None:
    """The whole life of a child process of the supervisor."""
    # Ctrl-C in a terminal goes to the whole group; only the supervisor is to hear it, and to pass it on once.
    os.setpgrp()
    configure_logging(plan.settings)
    follow_parent(plan.longest_stop_s)
    run_runner(plan)


async def _run(plan: RunnerPlan, agent: Agent[..., Any], stop: asyncio.Event) -> None:
    async with await connect(plan.server, settings=plan.settings) as store:
        runner = Runner(
            store,
            agent,
            worker_id=plan.worker_id,
            concurrency=plan.concurrency,
            lease_seconds=plan.lease_seconds,
            max_rollouts=plan.max_rollouts,
            drain_seconds=plan.drain_seconds,
        )
        await runner.run(stop)
