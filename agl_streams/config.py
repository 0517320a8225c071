"""Settings: one frozen object from ``AGL_*`` variables and flags; the only module that reads the environment.

An error names the variable (or the flag) and its value. Passwords in URLs are never shown.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from agl_streams.errors import ConfigError
from agl_streams.redis_url import SCHEMES, parse
from agl_streams.values import check_namespace

ENV_PREFIX = "AGL_"

MIB = 1024 * 1024
MAX_SHARDS = 256  # each shard costs every runner and aggregator a blocked read; more nodes than this is not the design
MAX_PORT = 65_535
MAX_DEQUEUE_WAIT_S = 20.0  # Agent-lightning's client gives a request up after 30 s
MAX_REPLICA_TIMEOUT_S = 60.0  # whoever called waits for as long
MAX_SECONDS = 30 * 24 * 3600.0  # a lease above a month is a typing error

_URL_PASSWORD = re.compile(r"(://[^:/@\s]*:).*(?=@)|([?&]password=)[^&]*")

# Variables of Agent-lightning that may stand beside ours without being a mistake.
_FOREIGN_VARIABLES = frozenset({"AGL_MANAGED_STORE", "AGL_MONITORING_DATA_PATH", "AGL_STORE_N_WORKERS"})
_SIMILAR = 0.85  # difflib ratio from which an unknown variable looks like a misspelt one of ours


def mask_url(url: str) -> str:
    """The URL with its password replaced by ``***``: for messages and logs."""
    return _URL_PASSWORD.sub(lambda match: (match[1] or match[2]) + "***", url)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # urlsplit checks the port only when asked for it
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from error
    return parts


def _check_redis_url(url: str) -> str:
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise ValueError(f"the scheme must be one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    if "+" in scheme:  # several hosts
        parse(url)
        return url
    parts = _split(url)
    if parts.scheme == "unix" and not parts.path.strip("/"):
        raise ValueError("a unix:// URL needs the path of the socket, as in unix:///run/valkey/valkey.sock")
    if parts.scheme != "unix" and not parts.hostname:
        raise ValueError(f"the host is missing, as in {parts.scheme}://localhost:6379")
    return url


def _check_http_url(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http:// or https:// URL with a host, as in http://localhost:8000")
    return url


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # expanduser of an unknown ~user
        raise ValueError(str(error)) from error


def default_data_dir() -> Path:
    """The user's data directory for this program, by the convention of the platform (XDG on Linux)."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "agl-streams"
    xdg = os.environ.get("XDG_DATA_HOME", "")
    base = Path(xdg) if xdg.startswith("/") else Path.home() / ".local" / "share"
    return base / "agl-streams"


Port = Annotated[int, Field(ge=0, le=MAX_PORT)]
ByteLimit = Annotated[int, Field(gt=0)]
RedisUrl = Annotated[str, AfterValidator(_check_redis_url)]
HttpUrl = Annotated[str, AfterValidator(_check_http_url)]


class Settings(BaseSettings):
    """Everything that can be configured. Make it with :func:`load_settings`: a bad value is a ConfigError there.

    Each field is read from the variable of its name with the prefix ``AGL_``. Durations are in seconds, sizes in bytes.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    redis_url: RedisUrl | None = Field(default=None, repr=False)
    """The server to use; None: the embedded engine of ``data_dir``. Not in the repr: it may hold a password."""
    namespace: Annotated[str, AfterValidator(check_namespace)] = "default"
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """Shards of a new namespace. A namespace keeps the number it was created with."""
    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(default_factory=default_data_dir)

    lease_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 30.0
    """How soon a dead runner is noticed."""
    dequeue_wait_seconds: Annotated[float, Field(ge=0, le=MAX_DEQUEUE_WAIT_S)] = 0.3
    """How long the HTTP server holds a dequeue that finds nothing and does not say how long it waits; 0: not at all.

    Agent-lightning's runner sleeps 5 s after an empty answer, and its first question often comes just before the first
    task. Held for longer, it would be later to hear that training is over.
    """
    worker_idle_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = 86_400.0
    """How long a worker may be idle, with nothing open, before it is forgotten."""
    max_deliveries: Annotated[int, Field(ge=1)] = 3
    """Claims of a rollout, lost runners included, before it is given up and put on the dead stream."""
    min_replicas: Annotated[int, Field(ge=0)] = 0
    """Replicas of each primary that must acknowledge a write before it counts."""
    replica_timeout_seconds: Annotated[float, Field(gt=0, le=MAX_REPLICA_TIMEOUT_S)] = 1.0
    """How long they may take. A write that too few acknowledge by then is an error, and may be repeated."""

    max_input_bytes: ByteLimit = 4 * MIB
    """Limit of a rollout's input, and of its metadata. A large one blocks the server for all (50 MB: 0.7 s)."""
    max_span_bytes: ByteLimit = 8 * MIB
    max_request_bytes: ByteLimit = 64 * MIB

    server_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    server_port: Port = 4747
    proxy_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    proxy_port: Port = 4750
    upstream: HttpUrl | None = None
    """The inference server that the proxy forwards to."""
    capture: Literal["required", "best_effort"] = "required"
    """``required``: a model call that cannot be recorded fails. ``best_effort``: it passes untraced, and is logged."""

    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = "INFO"
    log_format: Literal["console", "json"] = "console"

    @model_validator(mode="after")
    def _limits_fit(self) -> Self:
        for name in ("max_input_bytes", "max_span_bytes"):
            if getattr(self, name) > self.max_request_bytes:
                raise ValueError(
                    f"{ENV_PREFIX}{name.upper()}={getattr(self, name)} is above "
                    f"{ENV_PREFIX}MAX_REQUEST_BYTES={self.max_request_bytes}: nothing of that size could be sent"
                )
        return self


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment, with ``overrides`` (field names) on top; an override of None means "not given".

    Raises:
        ConfigError: a value does not validate; the message has one part per bad value, each with its name and value.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ConfigError("; ".join(_describe(dict(item), given) for item in error.errors())) from None
    except SettingsError as error:  # a value that the settings library could not even parse
        raise ConfigError(str(error)) from error


def _describe(item: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return message
    field = str(item["loc"][0])
    if item["type"] == "extra_forbidden":
        return f"{field}: there is no such setting"
    name = field if field in given else f"{ENV_PREFIX}{field.upper()}"
    return f"{name}={mask_url(str(item['input']))!r}: {message}"


def misspelt_variables() -> dict[str, str]:
    """``AGL_*`` variables that no setting reads but that resemble one: name -> the name probably meant."""
    known = {f"{ENV_PREFIX}{field.upper()}" for field in Settings.model_fields}
    unknown = {name for name in os.environ if name.startswith(ENV_PREFIX)} - known - _FOREIGN_VARIABLES
    matches = {name: difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR) for name in sorted(unknown)}
    return {name: match[0] for name, match in matches.items() if match}


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment for a process of ours started from this one: it loads equal settings from it.

    Everything else of this process's environment is passed on.
    """
    ours = {
        f"{ENV_PREFIX}{name.upper()}": str(value)
        for name, value in settings.model_dump(mode="json").items()
        if value is not None
    }
    foreign = {name: value for name, value in os.environ.items() if not _is_setting(name)}
    return foreign | ours


def _is_setting(variable: str) -> bool:
    return variable.startswith(ENV_PREFIX) and variable.removeprefix(ENV_PREFIX).lower() in Settings.model_fields
