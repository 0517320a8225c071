"""The entry point: an error of ours is one line on standard error."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from agl_streams.cli.app import app
from agl_streams.cli.options import EXIT_ERROR
from agl_streams.errors import AglError


def main() -> None:
    """Entry point of the console scripts."""
    try:
        app()
    except AglError as error:
        line = " ".join(str(error).split())
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False)
        raise SystemExit(EXIT_ERROR) from None
