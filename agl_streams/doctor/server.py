"""The server: what it is, whether it keeps what it is given, whether it has our functions, whether clocks agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.connection import RedisConnection
from agl_streams.doctor.findings import PERCENT, Finding, ok
from agl_streams.errors import CommandFailed, ServerRefused
from agl_streams.library import LIBRARIES, library
from agl_streams.projections import US_PER_S
from agl_streams.server_info import parse_info

FULL: Final = 0.8
"""Of maxmemory: from there on it is time to act."""
SKEW_S: Final = 1.0
"""Spans carry times of the machine that made them; below a second nobody is misled."""
KEEPS: Final = "noeviction"
MB: Final = 1024 * 1024
UNKNOWN: Final = "unknown"


async def examine_server(
    connection: RedisConnection, settings: Settings, near: str, *, used: bool, where: str
) -> list[Finding]:
    """Look at the server that holds a key.

    Args:
        near: the key.
        used: whether it is there: then our functions must be.
        where: what to call the server.
    """
    info = parse_info(cast("bytes", await connection.execute("INFO", near=near)))
    fsync = await _setting(connection, near, "appendfsync")
    return [
        _version(info, where),
        *_persistence(info, fsync, where),
        *_memory(info, where),
        _replicas(info, settings.min_replicas, where),
        await _functions(connection, near, used, where),
        await _clocks(connection, near, where),
    ]


async def run_id(connection: RedisConnection, near: str) -> str:
    """What tells the server that holds a key from other servers."""
    return parse_info(cast("bytes", await connection.execute("INFO", "server", near=near)))["run_id"]


async def _setting(connection: RedisConnection, near: str, name: str) -> str:
    """A line of the server's configuration; managed services keep theirs to themselves."""
    try:
        reply = cast("list[bytes]", await connection.execute("CONFIG", "GET", name, near=near))
    except (CommandFailed, ServerRefused):
        return UNKNOWN
    return reply[1].decode() if reply else UNKNOWN


def _version(info: Mapping[str, str], where: str) -> Finding:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", UNKNOWN)
    mode = info.get("redis_mode") or info.get("server_mode", UNKNOWN)
    return ok("server", f"{name} {version}, {mode}, up for {int(info['uptime_in_seconds']):,} s", where)


def _persistence(info: Mapping[str, str], fsync: str, where: str) -> Iterator[Finding]:
    on, check = info.get("aof_enabled") == "1", "persistence"
    if not on:
        yield Finding(
            check, "problem", "appendonly is off",
            "what came after the last snapshot is gone when the server ends, with all that was acknowledged since",
            "CONFIG SET appendonly yes, and the same line in its configuration file", where,
        )  # fmt: skip
    elif fsync == "no":
        yield Finding(
            check, "warning", "appendfsync is no",
            "a crash of the machine may cost the last half minute of acknowledged writes",
            "CONFIG SET appendfsync everysec, and the same line in its configuration file", where,
        )  # fmt: skip
    else:
        yield ok(check, f"append-only file, appendfsync {fsync}", where)
    if on and info.get("aof_last_write_status", "ok") != "ok":
        yield Finding(
            check, "problem", "the last write to the append-only file failed",
            "the server refuses writes until its disk takes them again", "free space on its disk; see its log", where,
        )  # fmt: skip
    for name, what in (("aof_last_bgrewrite_status", "rewrite of the append-only file"), ("rdb_last_bgsave_status",
        "snapshot")):  # fmt: skip
        if info.get(name, "ok") != "ok":
            yield Finding(
                check, "warning", f"the last {what} failed", "its disk or its memory is too small",
                "see the server's log", where,
            )  # fmt: skip


def _memory(info: Mapping[str, str], where: str) -> Iterator[Finding]:
    used, most = int(info["used_memory"]), int(info.get("maxmemory", "0"))
    policy = info.get("maxmemory_policy", UNKNOWN)
    if policy not in (KEEPS, UNKNOWN):
        yield Finding(
            "eviction", "problem" if most else "warning", f"maxmemory-policy is {policy}",
            "when it is full the server removes rollouts, queue and log, without a word",
            f"CONFIG SET maxmemory-policy {KEEPS}, and the same line in its configuration file", where,
        )  # fmt: skip
    else:
        yield ok("eviction", f"maxmemory-policy is {policy}", where)
    if not most:
        yield ok("memory", f"{used / MB:,.1f} MB used, no maxmemory", where)
        return
    found = f"{used / MB:,.1f} MB used of {most / MB:,.1f} MB ({used * PERCENT // most} %)"
    if used < FULL * most:
        yield ok("memory", found, where)
        return
    yield Finding(
        "memory", "problem" if used >= most else "warning", found,
        "when it is full, new rollouts, attempts and spans are refused; what runs can still be finished",
        "raise maxmemory, or delete the keys of namespaces that are done with", where,
    )  # fmt: skip


def _replicas(info: Mapping[str, str], wanted: int, where: str) -> Finding:
    there = int(info.get("connected_slaves", "0"))
    if there >= wanted:
        return ok("replicas", f"{there} connected, AGL_MIN_REPLICAS={wanted}", where)
    return Finding(
        "replicas", "problem", f"{there} connected, AGL_MIN_REPLICAS={wanted}",
        "no process of ours starts until they are there", "bring the replicas back, or lower AGL_MIN_REPLICAS", where,
    )  # fmt: skip


async def _functions(connection: RedisConnection, near: str, used: bool, where: str) -> Finding:
    ours = library()
    asked = ("FUNCTION", "LIST", "LIBRARYNAME", LIBRARIES, "WITHCODE")
    reply = cast("Any", await connection.execute(*asked, near=near))
    found = {one[b"library_name"].decode(): one[b"library_code"].decode() for one in map(_fields, reply)}
    others = len(found.keys() - {ours.name})
    beside = f", and {others} of other releases" if others else ""
    if ours.name not in found and not used:
        return ok("functions", f"not loaded yet; who connects first loads them{beside}", where)
    if ours.name not in found:
        return Finding(
            "functions", "problem", f"the library {ours.name} of this release is missing{beside}",
            "no process of this release has used the server, or somebody flushed its functions",
            "nothing: the next call loads it. If it goes again, find out who calls FUNCTION FLUSH", where,
        )  # fmt: skip
    if found[ours.name] != ours.source:
        return Finding(
            "functions", "problem", f"the library {ours.name} is not what this release has under that name",
            "somebody changed it; commands may do anything",
            f"FUNCTION DELETE {ours.name}: the next call loads the right one", where,
        )  # fmt: skip
    return ok("functions", f"library {ours.name}{beside}", where)


async def _clocks(connection: RedisConnection, near: str, where: str) -> Finding:
    before = clock.now_s()
    seconds, microseconds = cast("list[bytes]", await connection.execute("TIME", near=near))
    after = clock.now_s()
    theirs = int(seconds) + int(microseconds) / US_PER_S
    ahead = theirs - after if theirs > after else min(theirs - before, 0.0)
    if abs(ahead) <= SKEW_S:
        return ok("clocks", "this machine and the server agree to the second", where)
    return Finding(
        "clocks", "warning", f"the server is {abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine",
        "leases and limits go by the server's clock and hold; times of spans made here are off by as much",
        "set the clocks of both machines by NTP", where,
    )  # fmt: skip


def _fields(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
