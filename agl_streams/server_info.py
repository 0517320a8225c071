"""What a server says of itself (``INFO``), and whether it can serve us. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agl_streams import errors

OLDEST_REDIS: Final = (7, 0)  # Functions; XAUTOCLAIM that names deleted entries
OLDEST_VALKEY: Final = (7, 2)


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


def judge(info: Mapping[str, str], url: str) -> ServerInfo:
    """What server this is.

    Args:
        info: sections ``server`` and ``replication``.
        url: without credentials, for messages.

    Raises:
        ServerTooOld: Redis before 7.0, Valkey before 7.2.
        ServerReadOnly: a replica.
        ServerRefused: a node of a cluster, a Sentinel, or something that tells no version.
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
    mode = info.get("redis_mode", "standalone")
    if mode != "standalone":
        raise errors.ServerRefused(f"{url} runs in {mode} mode, which is not supported yet: give a single server")
    if info.get("role") != "master":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        raise errors.ServerReadOnly(f"{url} is a replica of {primary}: point AGL_REDIS_URL at the primary")
    return ServerInfo(name, version, int(info.get("connected_slaves", "0")))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
