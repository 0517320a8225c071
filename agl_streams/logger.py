"""The logger of every module here: what a program has set up for structlog holds; without it, standard error.

structlog's own default is standard output, which belongs to the program that imports us: a script whose output is read
by another must not find our events in it. ``telemetry.configure_logging`` is the set-up of our own processes.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import structlog

NAME: Final = "agl_streams"
"""What the standard library's loggers know us by, where a program routes structlog there."""


class _Output:
    """Where an event goes, decided when it is written: a set-up may come after our modules were imported."""

    def __getattr__(self, method: str) -> Any:
        configured = structlog.is_configured()
        logger = structlog.get_config()["logger_factory"](NAME) if configured else structlog.PrintLogger(sys.stderr)
        return getattr(logger, method)


def get_logger() -> Any:
    """A logger for one module; its methods take an event's name and its fields."""
    return structlog.wrap_logger(_Output())
