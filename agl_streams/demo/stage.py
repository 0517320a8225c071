"""The demo's processes: aggregator, policy server, proxy and runners, each real, each in a log file of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.demo.logs import Logs
from agl_streams.demo.options import DemoOptions
from agl_streams.errors import AglError
from agl_streams.parts import Child, how_it_ended, stop_children

T = TypeVar("T")

LOCALHOST: Final = "127.0.0.1"
CONCURRENCY: Final = 4  # rollouts at a time per runner: while one waits for the model, another thinks
READY_WITHIN_S: Final = 60.0  # starting seven Python processes on two busy cores takes some seconds
LOOK_AGAIN_S: Final = 0.02
DRAIN_S: Final = 2.0  # a rollout of the demo takes some 50 ms; without the other parts it ends never
NEWS_WITHIN_S: Final = 0.5  # a failure and the death that caused it are heard of in any order

POLICY_SERVER: Final = "agl_streams.demo.policy_server:run"
AGENT: Final = "agl_streams.demo.agent:solve"


class PartDied(AglError):
    """A process of the demo ended that should not have.

    Attributes:
        name: of the process.
    """

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.name = name


class Stage:
    """Starts the processes, watches them, and ends them.

    An error that leaves the context carries what the logs say to it as a note: they are gone when the demo is over.

    Attributes:
        processes: all of them by name.
        runners: names of the runners; they are worker ids as well.
        policy_url, proxy_url: where they listen, once started.
    """

    def __init__(
        self, options: DemoOptions, settings: Settings, folder: Path, on_ready: Callable[[str], None] | None = None
    ) -> None:
        """
        Args:
            folder: for the logs.
            on_ready: called with the name of each process that is ready.
        """
        self._options = options
        self._settings = settings.model_copy(update={"log_format": "json", "log_level": "INFO"})
        self._logs = Logs(folder)
        self._on_ready = on_ready
        self._children: dict[str, Child] = {}
        self._expected: set[str] = set()
        self._death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.processes: dict[str, SpawnProcess] = {}
        self.runners = [f"runner-{number}" for number in range(1, options.runners + 1)]
        self.policy_url = ""
        self.proxy_url = ""

    async def __aenter__(self) -> Self:
        try:
            await self._start_all()
        except BaseException as error:
            self._stop_all(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_all(error)

    async def while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` gives; it is cancelled when a process dies, or when this call is.

        Raises:
            PartDied: a process has died.
        """
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._death}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and task.exception() is not None:
                await asyncio.wait({self._death}, timeout=NEWS_WITHIN_S)
        finally:
            task.cancel()
            await asyncio.wait({task})
        failure = None if task.cancelled() else task.exception()
        if self._death.done():
            raise self._died(self._death.result()) from failure
        return task.result()

    def expect_death(self, name: str) -> None:
        """The process of this name is about to be killed on purpose."""
        self._expected.add(name)

    async def _start_all(self) -> None:
        # The proxy needs the policy server's address, so that one comes first; runners take longest.
        self._start("policy", POLICY_SERVER, {"port": 0, "seed": self._options.seed})
        for name in self.runners:
            arguments = {"agent": AGENT, "concurrency": CONCURRENCY, "worker_id": name, "drain_seconds": DRAIN_S}
            self._start(name, "worker", arguments)
        self._start("aggregate", "aggregate", {})
        self.policy_url = _url(await self._ready("policy", "policy_server_listening"))
        self._start("proxy", "proxy", {"upstream": self.policy_url, "host": LOCALHOST, "port": 0})
        await self._ready("aggregate", "aggregator_started")
        for name in self.runners:
            await self._ready(name, "runner_started")
        self.proxy_url = _url(await self._ready("proxy", "proxy_listening"))

    def _start(self, name: str, target: str, arguments: dict[str, Any]) -> None:
        child = Child(
            name=name,
            target=target,
            settings=self._settings,
            arguments=arguments,
            log=self._logs.path(name),
        )
        process = child.start()
        self._children[name] = child
        self.processes[name] = process
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(process.sentinel)
            if name not in self._expected and not self._death.done():
                self._death.set_result(name)

        loop.add_reader(process.sentinel, ended)

    async def _ready(self, name: str, event: str) -> dict[str, Any]:
        """Wait until a process has logged an event; returns it."""
        deadline = clock.monotonic_s() + READY_WITHIN_S
        while True:
            for record in self._logs.records(name):
                if record.get("event") == event:
                    if self._on_ready:
                        self._on_ready(name)
                    return record
            if self._death.done():
                raise self._died(self._death.result())
            if clock.monotonic_s() > deadline:
                raise PartDied(name, f"was not ready after {READY_WITHIN_S:.0f} s")
            await clock.sleep_s(LOOK_AGAIN_S)

    def _died(self, name: str) -> PartDied:
        process = self.processes[name]
        process.join()
        return PartDied(name, f"{how_it_ended(process)} in the middle of the demo")

    def _stop_all(self, error: BaseException | None) -> None:
        """Stop who takes work first, then who serves it; tell ``error`` what the logs say."""
        loop = asyncio.get_running_loop()
        for process in self.processes.values():
            loop.remove_reader(process.sentinel)
        runners = [name for name in self.runners if name in self.processes]
        for names in (runners, self.processes.keys() - runners):
            stop_children((self._children[name], self.processes[name]) for name in names)
        if isinstance(error, PartDied):
            error.add_note(self._logs.tail(error.name))
        elif isinstance(error, AglError):
            for complaints in filter(None, map(self._logs.complaints, self.processes)):
                error.add_note(complaints)


def _url(record: dict[str, Any]) -> str:
    return f"http://{record['host']}:{record['port']}"
