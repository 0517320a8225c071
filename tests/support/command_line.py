"""Commands given as from a shell: arguments and input in, output and exit code back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from agl_streams.config import Settings

COMMAND_LINE = [sys.executable, "-m", "agl_streams.cli"]


def run(*arguments: str, input: str | None = None, columns: int = 200) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without a terminal."""
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(columns), "TERM": "dumb"}
    return subprocess.run(
        [*COMMAND_LINE, *arguments], capture_output=True, text=True, check=False, env=environment, input=input
    )


class Shell:
    """Commands on one namespace."""

    def __init__(self, settings: Settings) -> None:
        self._flags = ("--redis-url", settings.redis_url or "", "--namespace", settings.namespace)

    def run(self, *arguments: str, input: str | None = None, columns: int = 200) -> subprocess.CompletedProcess[str]:
        """A command and how it ended."""
        return run(*arguments, *self._flags, input=input, columns=columns)

    def lines(self, *arguments: str, input: str | None = None) -> list[str]:
        """What a command prints, which must succeed and complain of nothing."""
        done = self.run(*arguments, input=input)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.splitlines()

    def json(self, *arguments: str) -> list[Any]:
        """The JSON documents that a command prints, one a line."""
        return [json.loads(line) for line in self.lines(*arguments, "--json")]
