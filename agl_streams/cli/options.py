"""What the commands share: their common flags, the settings made of them, and the server that these lead to."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agl_streams.config import Settings, load_settings
from agl_streams.engine import Engine
from agl_streams.errors import ConfigError
from agl_streams.telemetry import configure_logging

EXIT_MISSED: Final = 1
EXIT_ERROR: Final = 2

RedisUrl = Annotated[
    str | None,
    typer.Option("--redis-url", metavar="URL", help="Server to use [AGL_REDIS_URL]. Default: the embedded engine."),
]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Namespace [AGL_NAMESPACE]. Default: default.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the embedded engine [AGL_DATA_DIR].", show_default=False)
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
JsonLogs = Annotated[bool, typer.Option("--json", help="Write log events as JSON.")]


def settings_of(
    redis_url: str | None,
    namespace: str | None,
    data_dir: Path | None,
    json_logs: bool = False,
    *,
    quiet: bool = False,
    **more: Any,
) -> Settings:
    """Flags on top of the environment; logging is set up by them.

    Args:
        quiet: log warnings only, unless the level was chosen.
    """
    settings = load_settings(
        redis_url=redis_url,
        namespace=namespace,
        data_dir=data_dir,
        log_format="json" if json_logs else None,
        **more,
    )
    if quiet and "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "WARNING"})
    configure_logging(settings)
    return settings


@contextlib.contextmanager
def server_of(settings: Settings) -> Generator[Settings]:
    """The settings with a server to talk to: the one given, or the embedded engine of the data directory."""
    if settings.redis_url is not None:
        yield settings
        return
    with Engine.start(settings.data_dir) as engine:
        yield settings.model_copy(update={"redis_url": engine.url})


@contextlib.contextmanager
def extra(name: str) -> Generator[None]:
    """Turns the lack of a package that belongs to an extra into an error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("agl_"):
            raise  # a fault of ours, not a missing extra
        raise ConfigError(
            f"this command needs {error.name!r}, of the extra {name!r}: pip install 'agl-streams[{name}]'"
        ) from error
