"""Aggregators and runners as real processes that start in milliseconds, so that many of them can be killed in a test.

A server process has imported everything and forks each of them (``forkserver``). What a process does from there on is
what the command line does: the entry points of ``agl_workers``, with logging, signals and an event loop of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

from agl_streams.config import Settings
from agl_streams.server import serve
from agl_streams.telemetry import configure_logging
from agl_workers import aggregator_main, runner_main
from tests.support.waiting import PATIENCE_S, until_blocking

AGENTS = "tests.chaos.agents"
SHOWN_BYTES = 6_000  # of what each process has printed, in the report of a failed test

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__, AGENTS])


class Member:
    """A process of a crew.

    Attributes:
        name: of the process; a runner's worker id as well.
        log: the file that it prints to.
    """

    def __init__(self, name: str, work: Callable[[], None], settings: Settings, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = _context.Process(target=_live, args=(work, settings, log), name=name, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    @property
    def output(self) -> str:
        """The end of what it has printed so far."""
        return self.log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace") if self.log.exists() else ""

    def printed(self, text: str) -> None:
        """Wait until it has printed ``text``; fails at once when it ends without."""

        def seen() -> bool:
            ended = not self.running
            found = text in self.output
            assert found or not ended, f"{self.name} ended without printing {text!r}; it printed:\n{self.output}"
            return found

        until_blocking(seen, what=f"{self.name} to print {text!r}")

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._ended()

    def terminate(self) -> int | None:
        """SIGTERM, and wait for the end; the exit status."""
        self._process.terminate()
        return self._ended()

    def pause(self) -> None:
        """SIGSTOP: the process keeps all it has and does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: end of `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def _ended(self) -> int | None:
        self._process.join(PATIENCE_S)
        assert not self.running, f"{self.name} still runs after {PATIENCE_S} s; it printed:\n{self.output}"
        return self._process.exitcode


class Crew:
    """The processes that work in one namespace. The fixture ``crew`` gives one and ends them all.

    Attributes:
        settings: what they are started with.
        members: all that were started, in order.
    """

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.members: list[Member] = []
        self._directory = directory

    def aggregator(self) -> Member:
        """Start an aggregator, which has the watchdog with it."""
        return self._start("aggregator", partial(aggregator_main.run, self.settings))

    def server(self, port: int) -> Member:
        """Start an HTTP server on a port of 127.0.0.1. It leaves the aggregator to others."""
        work = partial(serve.run, self.settings, host="127.0.0.1", port=port, aggregator=False)
        return self._start("server", work)

    def runner(self, agent: str, *, concurrency: int = 4, server: str | None = None) -> Member:
        """Start a runner of one of the `AGENTS`, beside the store or, with its URL, for a server."""
        work = partial(
            runner_main.run,
            self.settings,
            agent=f"{AGENTS}:{agent}",
            concurrency=concurrency,
            worker_id=self._next_name("runner"),
            server=server,
        )
        return self._start("runner", work)

    def report(self) -> str:
        """What each process printed, for the report of a failed test."""
        return "\n".join(
            f"--- {one.name} (pid {one.pid}, running: {one.running})\n{one.output}" for one in self.members
        )

    def close(self) -> None:
        """Kill what still runs."""
        for member in self.members:
            if member.running:
                member.kill()

    def _start(self, kind: str, work: Callable[[], None]) -> Member:
        name = self._next_name(kind)
        member = Member(name, work, self.settings, self._directory / f"{name}.log")
        self.members.append(member)
        return member

    def _next_name(self, kind: str) -> str:
        return f"{kind}-{len(self.members)}"


def _live(work: Callable[[], None], settings: Settings, log: Path) -> None:
    """The whole life of a process."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    threading.Thread(target=_die_with_test, daemon=True).start()
    configure_logging(settings)
    work()


def _die_with_test() -> None:
    """A test run that is killed leaves nothing behind. The sentinel is ready when it is gone, however it went."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
