"""Parts: processes of the system that other packages bring, found by entry point, run here or as children.

The library imports none of them; ``agl_workers`` and ``agl_proxy`` register theirs in the group ``agl_streams.parts``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.errors import ConfigError
from agl_streams.logger import get_logger
from agl_streams.telemetry import configure_logging

GROUP: Final = "agl_streams.parts"

_log = get_logger()


def load_part(name: str) -> Callable[..., None]:
    """The function that runs a part: ``proxy``, ``aggregate``, ``worker``.

    Raises:
        ConfigError: no installed package offers it.
    """
    found = tuple(importlib.metadata.entry_points(group=GROUP, name=name))
    if not found:
        raise ConfigError(
            f"no installed package offers the part {name!r} (entry-point group {GROUP}); "
            "install agl-streams again: pip install --force-reinstall agl-streams"
        )
    return found[0].load()


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process to be started; it can be pickled.

    Attributes:
        name: of the process, for people.
        target: a part's name, or ``module:function`` for a process that is no part. Called with the settings.
        arguments: further keyword arguments of the target.
        log: file that takes its standard output and error; None shares this process's.
        longest_stop_s: how long it may take to end after SIGTERM before it counts as hanging.
        longest_orphan_s: the same when its parent has died, and nobody waits for what it would finish.
    """

    name: str
    target: str
    settings: Settings
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log: Path | None = None
    longest_stop_s: float = 15.0
    longest_orphan_s: float = 5.0

    def start(self) -> SpawnProcess:
        """Start it. It ends by itself when this process does, however this process ends."""
        # Not fork: a forked child would share the sockets and the locks of the parent.
        process = multiprocessing.get_context("spawn").Process(target=_run, args=(self,), name=self.name)
        # Ctrl-C goes to the whole group, and would meet the child in the middle of its imports. It inherits the block,
        # and lifts it when it has left the group. The tracker lifts it too when it is started, so it comes first.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _log.info("child_started", name=self.name, pid=process.pid)
        return process


def stop_children(running: Iterable[tuple[Child, SpawnProcess]]) -> None:
    """Stop children together: SIGTERM to all, then SIGKILL to those that hang. Returns when all have ended."""
    running = list(running)
    begun = clock.monotonic_s()
    for _, process in running:
        process.terminate()
    for child, process in running:
        process.join(max(begun + child.longest_stop_s - clock.monotonic_s(), 0.0))
        if process.is_alive():
            _log.error("child_killed", name=child.name, pid=process.pid, after_seconds=child.longest_stop_s)
            process.kill()
            process.join()


def how_it_ended(process: SpawnProcess) -> str:
    """The end of a process in words, for messages: its status, or the signal that killed it."""
    code = process.exitcode
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def follow_parent(longest_orphan_s: float) -> None:
    """End this process when the one that spawned it has died: gracefully, and by force if it hangs.

    The sentinel is the end of a pipe that only the parent holds; it is ready when the parent is gone, however it went.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        _log.warning("parent_died", pid=parent.pid)
        os.kill(os.getpid(), signal.SIGTERM)
        clock.block_s(longest_orphan_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def _run(child: Child) -> None:
    """The whole life of a child process."""
    _leave_the_terminal()
    if child.log is not None:
        _write_to(child.log)
    configure_logging(child.settings)
    follow_parent(child.longest_orphan_s)
    _target(child.target)(child.settings, **child.arguments)


def _leave_the_terminal() -> None:
    """Of Ctrl-C only the parent is to hear, and to pass it on once."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops the one that has waited, see `Child.start`
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _write_to(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


def _target(name: str) -> Callable[..., None]:
    module, separator, function = name.partition(":")
    return getattr(importlib.import_module(module), function) if separator else load_part(name)
