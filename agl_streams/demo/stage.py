"""The demo's processes: aggregator, policy server, proxy and runners, each real, each in a log file of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final, Self, cast

import orjson

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.demo.options import DemoOptions
from agl_streams.errors import AglError
from agl_streams.parts import Child

LOCALHOST: Final = "127.0.0.1"
CONCURRENCY: Final = 4  # rollouts at a time per runner: while one waits for the model, another thinks
READY_WITHIN_S: Final = 60.0  # starting five Python processes on two busy cores takes some seconds
LOOK_AGAIN_S: Final = 0.02
TAIL_LINES: Final = 15

POLICY_SERVER: Final = "agl_streams.demo.policy_server:run"
AGENT: Final = "agl_streams.demo.agent:solve"


class PartDied(AglError):
    """A process of the demo ended that should not have."""


class Stage:
    """Starts the processes, watches them, and ends them.

    Attributes:
        runners: the runner processes by worker id.
        policy_url, proxy_url: where they listen, once started.
    """

    def __init__(self, options: DemoOptions, settings: Settings, folder: Path) -> None:
        self._options = options
        self._settings = settings.model_copy(update={"log_format": "json", "log_level": "INFO"})
        self._folder = folder
        self._children: list[tuple[Child, SpawnProcess]] = []
        self._expected: set[str] = set()
        self._death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.runners: dict[str, SpawnProcess] = {}
        self.policy_url = ""
        self.proxy_url = ""

    async def __aenter__(self) -> Self:
        try:
            await self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_all()

    async def alive(self, work: asyncio.Task[Any]) -> None:
        """Wait for ``work``, or for the first process that dies.

        Raises:
            PartDied: with the end of its log.
        """
        await asyncio.wait({work, self._death}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            raise self._died(self._death.result())
        work.result()

    def expect_death(self, name: str) -> None:
        """The process of this name is about to be killed on purpose."""
        self._expected.add(name)

    async def _start_all(self) -> None:
        aggregator = self._start("aggregate", "aggregate", {})
        policy = self._start("policy", POLICY_SERVER, {"port": 0, "seed": self._options.seed})
        runners = [f"runner-{number}" for number in range(1, self._options.runners + 1)]
        self.policy_url = _url(await self._ready(policy, "policy_server_listening"))
        arguments = {"upstream": self.policy_url, "host": LOCALHOST, "port": 0}
        proxy = self._start("proxy", "proxy", arguments)
        for name in runners:
            worker = {"agent": AGENT, "concurrency": CONCURRENCY, "worker_id": name}
            self.runners[name] = self._start(name, "worker", worker)
        self.proxy_url = _url(await self._ready(proxy, "proxy_listening"))
        await self._ready(aggregator, "aggregator_started")
        for name in runners:
            await self._ready(self.runners[name], "runner_started")

    def _start(self, name: str, target: str, arguments: dict[str, Any]) -> SpawnProcess:
        child = Child(
            name=name, target=target, settings=self._settings, arguments=arguments, log=self._folder / f"{name}.log"
        )
        process = child.start()
        self._children.append((child, process))
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(process.sentinel)
            if name not in self._expected and not self._death.done():
                self._death.set_result(name)

        loop.add_reader(process.sentinel, ended)
        return process

    async def _ready(self, process: SpawnProcess, event: str) -> dict[str, Any]:
        """Wait until a process has logged an event; returns it."""
        deadline = clock.monotonic_s() + READY_WITHIN_S
        while True:
            for record in self._records(process.name):
                if record.get("event") == event:
                    return record
            if self._death.done():
                raise self._died(self._death.result())
            if clock.monotonic_s() > deadline:
                tail = self._tail(process.name)
                raise PartDied(f"{process.name} was not ready after {READY_WITHIN_S:.0f} s:\n{tail}")
            await clock.sleep_s(LOOK_AGAIN_S)

    def _records(self, name: str) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        for line in self._log(name).splitlines():
            with suppress(orjson.JSONDecodeError):  # a line may be half written, or another library's
                record = orjson.loads(line)
                if isinstance(record, dict):
                    records.append(cast("dict[str, Any]", record))
        return records

    def _log(self, name: str) -> str:
        path = self._folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _tail(self, name: str) -> str:
        return "\n".join(self._log(name).splitlines()[-TAIL_LINES:])

    def _died(self, name: str) -> PartDied:
        (process,) = [process for _, process in self._children if process.name == name]
        process.join()
        return PartDied(f"{name} ended with status {process.exitcode} in the middle of the demo:\n{self._tail(name)}")

    def _stop_all(self) -> None:
        loop = asyncio.get_running_loop()
        for _, process in self._children:
            loop.remove_reader(process.sentinel)
        # In the order of the flow: who takes work first, who serves it after.
        for child, process in reversed(self._children):
            child.stop(process)


def _url(record: dict[str, Any]) -> str:
    return f"http://{record['host']}:{record['port']}"
