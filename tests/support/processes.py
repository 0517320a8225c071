"""Real processes for tests: started, signalled and killed, with their output shown when a test fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import PATIENCE_S, until_blocking

ROOT = Path(__file__).resolve().parents[2]
SHOWN_BYTES = 20_000


class Process:
    """A running process whose standard output and error go to one file.

    Attributes:
        name: for messages.
        log: the file.
    """

    def __init__(self, name: str, argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        """What it has printed so far (the last ``SHOWN_BYTES``)."""
        return self.log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._popen.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; its exit status, negative for a signal."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout_s} s; it printed:\n{self.output}") from None

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """SIGTERM, and wait for the end; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def printed(self, text: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it has printed ``text``; fails at once when it ends without."""

        def seen() -> bool:
            ended = not self.running
            found = text in self.output
            assert found or not ended, f"{self.name} ended without printing {text!r}; it printed:\n{self.output}"
            return found

        until_blocking(seen, timeout_s=timeout_s, what=f"{self.name} to print {text!r}")


class ProcessGroup:
    """The processes of one test; ``close`` ends them all. The fixture ``processes`` gives one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[Process] = []

    def start(self, *argv: str, name: str | None = None, env: Mapping[str, str] | None = None) -> Process:
        """Start a program with the environment of this process, ``env`` on top."""
        name = name or f"{Path(argv[0]).name}-{len(self._processes)}"
        process = Process(name, argv, self._directory / f"{name}.log", env)
        self._processes.append(process)
        return process

    def python(self, code: str, *args: str, name: str | None = None, env: Mapping[str, str] | None = None) -> Process:
        """Run Python source in a new interpreter from the project's root."""
        return self.start(sys.executable, "-c", code, *args, name=name or f"python-{len(self._processes)}", env=env)

    def module(self, module: str, *args: str, name: str | None = None, env: Mapping[str, str] | None = None) -> Process:
        """Run ``python -m module``."""
        return self.start(sys.executable, "-m", module, *args, name=name or f"{module}-{len(self._processes)}", env=env)

    def report(self) -> str:
        """What each process printed, for the report of a failed test."""
        return "\n".join(
            f"--- {process.name} (pid {process.pid}, running: {process.running})\n{process.output}"
            for process in self._processes
        )

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._processes:
            if process.running:
                process.kill()


def is_alive(pid: int) -> bool:
    """Whether a process of that id runs, a zombie not counted where the system tells (Linux)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc").is_dir()
