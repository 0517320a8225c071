"""What a server says of itself (``INFO``), and whether it can serve us. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agl_streams import errors

OLDEST_REDIS: Final = (7, 0)  # Functions; XAUTOCLAIM that names deleted entries
OLDEST_VALKEY: Final = (7, 2)

_KEEPS: Final = "noeviction"
_FORMS: Final = {
    "standalone": "redis://host:port",
    "cluster": "redis+cluster://host:port,host:port",
    "sentinel": "redis+sentinel://host:port,host:port/service",
}


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Which server answers.

    Attributes:
        name: ``redis`` or ``valkey``.
        version: numbers of its own version, e.g. ``(9, 1, 2)``.
        replicas: how many are connected to it.
    """

    name: str
    version: tuple[int, ...]
    replicas: int


def parse_info(text: bytes) -> dict[str, str]:
    """The lines ``name:value`` of an INFO reply."""
    return dict(line.split(":", 1) for line in text.decode(errors="replace").splitlines() if ":" in line)


def judge(info: Mapping[str, str], url: str, expected_mode: str = "standalone") -> ServerInfo:
    """What server this is.

    Args:
        info: sections ``server`` and ``replication``.
        url: without credentials, for messages.
        expected_mode: what it must run as: ``standalone`` or ``cluster``.

    Raises:
        ServerTooOld: Redis before 7.0, Valkey before 7.2.
        ServerReadOnly: a replica.
        ServerRefused: it runs as something else than its URL says, or tells no version.
    """
    # Valkey reports the Redis version that it is compatible with, and its own beside it.
    name = "valkey" if "valkey_version" in info else "redis"
    version = _numbers(info.get(f"{name}_version", ""))
    if not version:
        raise errors.ServerRefused(f"{url} is no Redis or Valkey: its INFO names no version")
    if version < (OLDEST_VALKEY if name == "valkey" else OLDEST_REDIS):
        raise errors.ServerTooOld(
            f"{url} is {name} {_dotted(version)}; at least Redis {_dotted(OLDEST_REDIS)} or Valkey "
            f"{_dotted(OLDEST_VALKEY)} is needed, for Functions"
        )
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    if mode != expected_mode:
        raise errors.ServerRefused(f"{url} runs in {mode} mode: give it as {_FORMS.get(mode, mode)}")
    if info.get("role") != "master":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        raise errors.ServerReadOnly(f"{url} is a replica of {primary}: point AGL_REDIS_URL at the primary")
    return ServerInfo(name, version, int(info.get("connected_slaves", "0")))


def risks(info: Mapping[str, str]) -> list[str]:
    """What of a server's configuration may lose rollouts. None of it hinders a trial.

    Args:
        info: sections ``persistence`` and ``memory``.
    """
    found: list[str] = []
    if info.get("aof_enabled") == "0":
        found.append("appendonly is off: what came after the last snapshot is gone when the server ends")
    policy = info.get("maxmemory_policy", _KEEPS)
    if policy != _KEEPS and info.get("maxmemory", "0") != "0":
        found.append(f"maxmemory-policy is {policy}: when it is full the server removes rollouts; {_KEEPS} keeps them")
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
