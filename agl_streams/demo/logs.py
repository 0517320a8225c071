"""The log files of the demo's processes: events to wait for, and what to show when something went wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import orjson

TAIL_LINES: Final = 15
COMPLAINT_LINES: Final = 3  # of each process, when it is not known whose fault it is
COMPLAINTS: Final = ("warning", "error", "critical")


class Logs:
    """One file for each process, by its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        """The log file of a process."""
        return self._folder / f"{name}.log"

    def records(self, name: str) -> list[dict[str, Any]]:
        """The log events so far."""
        records: list[dict[str, Any]] = []
        for line in self._lines(name):
            with suppress(orjson.JSONDecodeError):  # a line may be half written, or another library's
                record = orjson.loads(line)
                if isinstance(record, dict):
                    records.append(cast("dict[str, Any]", record))
        return records

    def tail(self, name: str) -> str:
        """The end of a log, with a heading."""
        lines = self._lines(name)[-TAIL_LINES:]
        return "\n".join([f"the log of {name} ends:", *lines]) if lines else f"the log of {name} is empty"

    def complaints(self, name: str) -> str:
        """The newest warnings and errors of a log with a heading; nothing if there are none."""
        found = [orjson.dumps(one).decode() for one in self.records(name) if one.get("level") in COMPLAINTS]
        return "\n".join([f"{name} complained:", *found[-COMPLAINT_LINES:]]) if found else ""

    def _lines(self, name: str) -> list[str]:
        path = self.path(name)
        return path.read_text(errors="replace").splitlines() if path.exists() else []
