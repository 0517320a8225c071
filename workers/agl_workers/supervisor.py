"""Several runner processes under one: started, started again when they die, ended together."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from typing import Final

from agl_streams import clock
from agl_streams.logger import get_logger
from agl_workers.loops import set_within, together
from agl_workers.runner_process import RunnerPlan, run_child

FIRST_PAUSE_S: Final = 0.2  # before a dead runner is started again
MOST_PAUSE_S: Final = 10.0  # a runner that dies at its start would otherwise import its agent without end
HEALTHY_S: Final = 30.0  # a runner that lived so long did not die of its start

_log = get_logger()


class Supervisor:
    """Keeps one process for each plan alive until it is stopped.

    A process that ends by itself with status 0 has done its work and is not replaced. One that dies is: what it held is
    queued again when its leases have run out.
    """

    def __init__(self, plans: Sequence[RunnerPlan]) -> None:
        self._plans = plans
        # Not fork: a forked child would share the sockets and the locks of the parent.
        self._context = multiprocessing.get_context("spawn")

    async def run(self, stop: asyncio.Event) -> None:
        """Run the processes until ``stop`` is set or all have ended; none is left when this returns or raises."""
        await together(*(self._keep(plan, stop) for plan in self._plans))

    async def _keep(self, plan: RunnerPlan, stop: asyncio.Event) -> None:
        pause_s = FIRST_PAUSE_S
        while not stop.is_set():
            started_s = clock.monotonic_s()
            status = await self._live(plan, stop)
            if status == 0 or stop.is_set():
                return
            if clock.monotonic_s() - started_s > HEALTHY_S:
                pause_s = FIRST_PAUSE_S
            _log.warning("runner_died", worker_id=plan.worker_id, status=status, restart_in_s=pause_s)
            await set_within(stop, pause_s)
            pause_s = min(pause_s * 2, MOST_PAUSE_S)

    async def _live(self, plan: RunnerPlan, stop: asyncio.Event) -> int | None:
        """The whole life of one process; its exit status, negative for a signal."""
        process = self._context.Process(target=run_child, args=(plan,), name=plan.worker_id)
        process.start()
        ended = _ended(process)
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.terminate()
                await asyncio.wait({ended}, timeout=plan.longest_stop_s)
        finally:
            stopping.cancel()
            ended.cancel()
            if process.is_alive():
                _log.error("runner_killed", worker_id=plan.worker_id, pid=process.pid)
                process.kill()
            process.join()
        return process.exitcode


def _ended(process: SpawnProcess) -> asyncio.Future[None]:
    """A future that is done when the process has ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        loop.remove_reader(process.sentinel)
        with suppress(asyncio.InvalidStateError):
            ended.set_result(None)

    loop.add_reader(process.sentinel, ready)
    ended.add_done_callback(lambda _: loop.remove_reader(process.sentinel))
    return ended
