"""The data directory of an embedded server: who may use it, where its socket is, and whether a server lives in it.

Three advisory locks (``flock``, which the kernel drops with the last process that holds them) decide everything, so no
stale pid or socket file can mislead:

- ``run/starting`` is held by a process that is starting a server or joining one, so two starters never race;
- ``run/alive`` is held by the *server*, which inherits it, for as long as it lives. Who can take it knows that no
  server has the data directory open, whatever files a crashed one left behind;
- ``run/owned`` is held by the process that started the server. Where it is free the server is about to end: it still
  answers for up to 0.1 s after its starter was killed, and joining it then would be a mistake.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agl_streams import clock
from agl_streams.errors import EngineError

MAX_SOCKET_PATH_BYTES: Final = 103  # sun_path, without its final NUL: 103 on macOS, 107 on Linux
LOCK_PAUSE_S: Final = 0.005  # the holder of "starting" needs some 10 ms
LOG_TAIL_BYTES: Final = 2_000
FIRST_HIGH_FD: Final = 10  # a shell uses the descriptors below for itself
PRIVATE: Final = 0o700

_USE_ANOTHER = "choose another with --data-dir (AGL_DATA_DIR)"

# Descriptors that a fork must not keep open: a lock or a leash in its hands would outlive the process that took it.
_not_for_forks: set[int] = set()


def _close_in_fork() -> None:
    for descriptor in _not_for_forks:
        os.close(descriptor)
    _not_for_forks.clear()


os.register_at_fork(after_in_child=_close_in_fork)


def keep_from_forks(descriptor: int) -> int:
    """Have ``descriptor`` closed in every later fork of this process; give it back with ``close_kept``."""
    _not_for_forks.add(descriptor)
    return descriptor


def close_kept(descriptor: int) -> None:
    """Close a descriptor given to ``keep_from_forks``. Safe to call twice, and in a fork."""
    if descriptor in _not_for_forks:
        _not_for_forks.discard(descriptor)
        os.close(descriptor)


class DataDir:
    """A data directory that this user owns and may write.

    Attributes:
        path: absolute, without symbolic links.
        socket: where the server's socket is, or will be.
        config: the server's configuration file.
        log: what the server prints.
    """

    def __init__(self, path: Path) -> None:
        """Create what is missing, private to this user.

        Raises:
            EngineError: not a directory, owned by another user, or not writable.
        """
        try:
            self.path = path.expanduser().resolve()
            self.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self._check_owner(self.path)
            self._run = self.path / "run"
            _make_private(self._run)
            self._record = self._run / "socket"
            self.config = self._run / "valkey.conf"
            self.log = self.path / "valkey.log"
            self.log.touch(mode=0o600)
        except OSError as error:
            raise EngineError(f"cannot use the data directory {path}: {error.strerror}; {_USE_ANOTHER}") from error
        self.socket = self._own_socket = self._run / "valkey.sock"

    @staticmethod
    def _check_owner(path: Path) -> None:
        owner = path.stat().st_uid
        if owner != os.geteuid():
            raise EngineError(
                f"the data directory {path} belongs to uid {owner}, and its files would belong to this process's uid "
                f"{os.geteuid()}, so its owner could not use them. Run as that user, or {_USE_ANOTHER}"
            )

    @contextmanager
    def starting(self, timeout_s: float) -> Generator[None]:
        """Keep other starters out. Raises ``EngineError`` when one of them takes longer than ``timeout_s``."""
        descriptor = keep_from_forks(os.open(self._run / "starting", os.O_RDWR | os.O_CREAT, 0o600))
        try:
            deadline = clock.monotonic_s() + timeout_s
            while not _lock(descriptor):
                if clock.monotonic_s() > deadline:
                    raise EngineError(
                        f"another process has been starting a server in {self.path} for {timeout_s:.0f} s; "
                        f"look at {self.log}"
                    )
                clock.block_s(LOCK_PAUSE_S)
            yield
        finally:
            close_kept(descriptor)

    def claim(self) -> int | None:
        """Take the lock of the living, for a server to inherit; None while a server has it.

        The descriptor is at least ``FIRST_HIGH_FD``. Give it to ``close_kept`` once the server has it.
        """
        opened = os.open(self._run / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            descriptor = keep_from_forks(fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_FD))
        finally:
            os.close(opened)
        if _lock(descriptor):
            return descriptor
        close_kept(descriptor)
        return None

    def own(self) -> int:
        """Take the lock of the server's owner, in a file of its own: an earlier owner may not have noticed its end."""
        path = self._run / "owned"
        path.unlink(missing_ok=True)
        descriptor = keep_from_forks(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        _lock(descriptor)
        return descriptor

    def is_owned(self) -> bool:
        """Whether the process that started the living server is there to keep it."""
        try:
            descriptor = os.open(self._run / "owned", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _lock(descriptor)
        finally:
            os.close(descriptor)

    def place_socket(self) -> None:
        """Choose the socket of a new server, note it for those who join, and clear away what a crashed one left."""
        self.socket = self._own_socket
        if len(os.fsencode(self.socket)) > MAX_SOCKET_PATH_BYTES:
            self.socket = self._short_directory() / "valkey.sock"
        self.socket.unlink(missing_ok=True)
        self._record.write_bytes(os.fsencode(self.socket))

    def find_socket(self) -> None:
        """Take the socket that the living server was started with: another process may have another ``TMPDIR``."""
        if self._record.exists():
            self.socket = Path(os.fsdecode(self._record.read_bytes()))

    def _short_directory(self) -> Path:
        name = f"agl-{os.geteuid()}-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]}"
        for base in (Path(tempfile.gettempdir()), Path("/tmp")):
            directory = base / name
            if len(os.fsencode(directory / "valkey.sock")) <= MAX_SOCKET_PATH_BYTES:
                _make_private(directory)
                return directory
        raise EngineError(f"no directory is short enough for the socket of {self.path}; {_USE_ANOTHER}")

    def log_tail(self) -> str:
        """The end of the server's log, for error messages."""
        with self.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()


def _make_private(directory: Path) -> None:
    """A directory of our own that nobody else can enter; in a shared place, somebody may have put something there."""
    directory.mkdir(mode=PRIVATE, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise EngineError(f"{directory} is in the way: it should be a directory of uid {os.geteuid()}; remove it")
    directory.chmod(PRIVATE)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
