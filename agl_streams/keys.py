"""Every Redis key of the project: its name, type, writer, reader and lifetime.

All keys of a shard share the hash tag ``{namespace.shard}``, so each function runs on one node of a cluster. Keys are
of two classes. **Durable** keys are written only by ``apply`` (and ``fold``, its part for sums) and come out equal
after a rebuild from the log. **Live** keys hold leases, heartbeats and request bookkeeping; they may be lost with a
rebuild and are never by themselves the reason for a status.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from agl_streams.errors import ForeignKey


@dataclass(frozen=True, slots=True)
class KeyKind:
    """One row of the key table.

    Attributes:
        name: the name behind the shard's prefix; ``<...>`` stands for an id.
        type: Redis type.
        durable: whether a rebuild from the log brings it back equal.
        holds: what it is, who writes and who reads it, and how long it stays.
    """

    name: str
    type: str
    durable: bool
    holds: str


KINDS: Final = (
    KeyKind("meta", "hash", True, "schema, shard count, event number, clock, fold position, totals"),
    KeyKind("log", "stream", True, "every event in order; groups: aggregator, archiver; trimmed only by retention"),
    KeyKind("tasks", "stream", True, "the queue: exactly the queued rollouts; group runners; an entry goes when begun"),
    KeyKind("finished", "stream", True, "one entry per rollout that reached a finished status; waiters read it"),
    KeyKind("dead", "stream", True, "rollouts given up after too many deliveries, with the reason, until dealt with"),
    KeyKind("index:created", "zset", True, "rollouts by creation number"),
    KeyKind("index:status:<status>", "zset", True, "rollouts of one status by creation number"),
    KeyKind("index:workers", "zset", True, "workers by the event that made them"),
    KeyKind("rollout:<rollout>", "hash", True, "projection of a rollout; sums by fold; until retention"),
    KeyKind("attempt:<rollout>:<attempt>", "hash", True, "projection of an attempt; sums by fold; until retention"),
    KeyKind("body:<rollout>:<version>", "string", True, "input, config, metadata; opaque to functions; immutable"),
    KeyKind("abody:<rollout>:<attempt>:<version>", "string", True, "metadata of an attempt; opaque; immutable"),
    KeyKind("spans:<rollout>:<attempt>", "hash", True, "span id -> sequence number, request token, payload"),
    KeyKind("worker:<worker>", "hash", True, "what transitions say of a worker"),
    KeyKind("resources", "zset", True, "resources ids by the event of their newest version; shard 0"),
    KeyKind("resources:<resources>", "hash", True, "version and times of a bundle; shard 0"),
    KeyKind("resources:<resources>:<version>", "string", True, "content of one version; immutable; shard 0"),
    KeyKind("live:deadlines", "zset", False, "open attempts by the time the watchdog must look at them, microseconds"),
    KeyKind("live:leases", "hash", False, "attempt -> when its lease runs out, microseconds"),
    KeyKind("live:sequence", "hash", False, "rollout -> highest span sequence number handed out"),
    KeyKind("live:watch", "hash", False, "last run of expire, end of grace, place of a repair of the queue"),
    KeyKind("live:workers", "zset", False, "workers by last heartbeat or poll"),
    KeyKind("live:worker:<worker>", "hash", False, "heartbeat time and statistics, last poll"),
    KeyKind("live:claim:<attempt>", "string", False, "which rollout a claim was given, to answer its repeat; minutes"),
    KeyKind("live:mark", "string", False, "written after each write that waits for replicas"),
    KeyKind("live:request:<token>", "string", False, "that a request was carried out, to answer its repeat; minutes"),
)

STATUSES: Final = ("queuing", "preparing", "running", "succeeded", "failed", "requeuing", "cancelled")
_BY_STATUS: Final = "index:status:<status>"
_KEY: Final = re.compile(r"agl:\{(?P<namespace>[A-Za-z0-9._~-]+)\.(?P<shard>\d+)\}:(?P<name>.+)")
_PATTERNS: Final = tuple((kind, re.compile(re.sub(r"<[a-z]+>", "[^:]+", kind.name))) for kind in KINDS)


def fixed_keys() -> dict[str, str]:
    """The names that hold no id, each with its Redis type; ``index:status:<status>`` is one for every status."""
    names = {kind.name: kind.type for kind in KINDS}
    by_status = names.pop(_BY_STATUS)
    names |= {_BY_STATUS.replace("<status>", status): by_status for status in STATUSES}
    return {name: kind for name, kind in names.items() if "<" not in name}


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A key taken apart."""

    namespace: str
    shard: int
    name: str
    kind: KeyKind


def parse(key: bytes) -> ParsedKey:
    """Take a key apart.

    Raises:
        ForeignKey: the key is none of ours.
    """
    match = _KEY.fullmatch(key.decode(errors="replace"))
    if match:
        for kind, pattern in _PATTERNS:
            if pattern.fullmatch(match["name"]):
                return ParsedKey(match["namespace"], int(match["shard"]), match["name"], kind)
    raise ForeignKey(f"the key {key!r} is none that agl-streams writes; see keys.py for the list")


def escape(text: str) -> str:
    """A worker or resources id as part of a key: any printable text, without a colon."""
    return quote(text, safe="~.-_")


def unescape(part: str) -> str:
    """The id that `escape` was given."""
    return unquote(part)


def shard_of(rollout_id: str, shards: int) -> int:
    """The shard of a rollout: a stable hash of its id, the same in every release and process."""
    return zlib.crc32(rollout_id.encode()) % shards


class ShardKeys:
    """The keys of one shard."""

    def __init__(self, namespace: str, shard: int) -> None:
        self.prefix = f"agl:{{{namespace}.{shard}}}:"
        self.meta = self.prefix + "meta"
        self.log = self.prefix + "log"
        self.tasks = self.prefix + "tasks"
        self.finished = self.prefix + "finished"
        self.dead = self.prefix + "dead"
        self.created = self.prefix + "index:created"
        self.workers = self.prefix + "index:workers"
        self.live_workers = self.prefix + "live:workers"
        self.resources = self.prefix + "resources"

    def status(self, status: str) -> str:
        """Index of the rollouts of one status."""
        return f"{self.prefix}index:status:{status}"

    def rollout(self, rollout_id: str) -> str:
        """Projection of a rollout."""
        return f"{self.prefix}rollout:{rollout_id}"

    def spans(self, rollout_id: str, attempt_id: str) -> str:
        """Stored spans of an attempt."""
        return f"{self.prefix}spans:{rollout_id}:{attempt_id}"

    def payload(self, name: str) -> str:
        """The key of a payload that an event names: a body or a version of resources."""
        return self.prefix + name
