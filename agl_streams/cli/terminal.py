"""What the commands that look and act share: the store that they ask, and how they print for people and for scripts.

A row of a table is one line, however long: a terminal wraps it, a pipe keeps it. What is shown of other people's texts
has no control characters, which could write anywhere on a screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic_core import to_json
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agl_streams.cli.options import server_of, settings_of
from agl_streams.config import Settings
from agl_streams.errors import ConfigError

if TYPE_CHECKING:
    from agl_streams.connect import Store

EXIT_PIPE: Final = 141
"""What a shell tells of a program that was stopped by a closed pipe."""
NO_LIMIT: Final = 100_000  # columns: tables are never cut or wrapped
NOTHING: Final = "-"
EVERYTHING: Final = -1
"""As a limit of what is listed."""
SECOND_MINUTES: Final = 60
STYLES: Final = {
    "succeeded": "green", "ok": "green", "failed": "red", "problem": "red", "timeout": "red", "unresponsive": "red",
    "cancelled": "yellow", "requeuing": "yellow", "warning": "yellow", "running": "cyan", "preparing": "cyan",
}  # fmt: skip

ServerUrl = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Ask this HTTP server, instead of its Redis.")
]


@dataclass(frozen=True, slots=True)
class Target:
    """Which store is meant."""

    settings: Settings
    server: str | None
    namespace: str | None


def target_of(redis_url: str | None, namespace: str | None, data_dir: Path | None, server: str | None) -> Target:
    """The store that the common flags name.

    Raises:
        ConfigError: a server of both kinds, or a setting that does not fit.
    """
    if server is not None and redis_url is not None:
        raise ConfigError(f"--server {server!r} and --redis-url name two stores: give one of them")
    return Target(settings_of(redis_url, namespace, data_dir, quiet=True), server, namespace)


def run(target: Target, work: Callable[[Store], Awaitable[int]]) -> None:
    """Do something with the store, and end with the exit code that it gives."""
    with contextlib.nullcontext(target.settings) if target.server else server_of(target.settings) as settings:
        finish(lambda: asyncio.run(_with_store(settings, target, work)))


def finish(work: Callable[[], int]) -> None:
    """Do something that prints, and end with the exit code that it gives, or quietly when nobody reads on."""
    try:
        code = work()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is buffered still would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_PIPE
    raise typer.Exit(code)


async def _with_store(settings: Settings, target: Target, work: Callable[[Store], Awaitable[int]]) -> int:
    from agl_streams.connect import connect  # clients of both kinds take half of the time that a command takes to start

    if target.server is None:
        store = await connect(settings=settings)
    else:
        store = await connect(target.server, settings=settings, namespace=target.namespace)
    async with store:
        return await work(store)


def write(line: str) -> None:
    """One line for whoever reads the answer."""
    sys.stdout.write(line + "\n")


def write_json(value: Any) -> None:
    """One JSON document on a line."""
    write(as_json(value))


def as_json(value: Any) -> str:
    """A value, models included, as compact JSON; NaN and infinity, which JSON lacks, are null."""
    return to_json(value, inf_nan_mode="null").decode()


def remark(line: str) -> None:
    """One line beside the answer, for people."""
    sys.stderr.write(line + "\n")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; a heading that begins with '>' stands over numbers. Known words have their colour on a terminal."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(heading.removeprefix(">"), justify="right" if heading.startswith(">") else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(text := printable(cell), style=STYLES.get(text, "")) for cell in row))
    Console(width=NO_LIMIT, highlight=False).print(grid)


def styled(*parts: tuple[str, int]) -> None:
    """Texts of a least width each on one line; known words have their colour on a terminal."""
    line = Text()
    for text, width in parts:
        line.append(f"{printable(text):{width}}", style=STYLES.get(text, ""))
    Console(width=NO_LIMIT, highlight=False).print(line)


def printable(value: object) -> str:
    """A value as text without control characters."""
    text = NOTHING if value is None else str(value)
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def moment(seconds: float | None) -> str | None:
    """A Unix time as people here read it."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """A length of time in the unit that fits."""
    seconds = max(seconds, 0.0)
    if seconds < SECOND_MINUTES:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), SECOND_MINUTES)
    hours, minutes = divmod(minutes, SECOND_MINUTES)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
