"""What the children of the tests of parts do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import structlog

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.parts import Child

HOUR_S = 3600.0


def tell(settings: Settings, *, word: str, where: Path) -> None:
    """Write down what it was given, and say something on each way out."""
    where.write_text(f"{word} {settings.namespace} {os.getpgrp() == os.getpid()}")
    sys.stdout.write("to standard output\n")
    sys.stderr.write("to standard error\n")
    structlog.get_logger().info("an_event")


def fail(_settings: Settings) -> None:
    """Fail."""
    raise RuntimeError("on purpose")


def wait(_settings: Settings, *, where: Path) -> None:
    """Work until it is told to end."""
    where.write_text(str(os.getpid()))
    clock.block_s(HOUR_S)


def hang(_settings: Settings, *, where: Path) -> None:
    """Work, and be deaf to everything but SIGKILL."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait(_settings, where=where)


def family(settings: Settings, *, where: Path) -> None:
    """Have two children of its own, of which one hangs."""
    for name, target in {"willing": wait, "deaf": hang}.items():
        arguments = {"where": where / name}
        child = Child(
            name=name,
            target=f"{__name__}:{target.__name__}",
            settings=settings,
            arguments=arguments,
            longest_orphan_s=0.2,
        )
        child.start()
    clock.block_s(HOUR_S)
