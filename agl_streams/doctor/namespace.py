"""A namespace, shard by shard: whether somebody folds, watches and works, and what has been left lying."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from agl_streams.config import Settings
from agl_streams.connection import RedisConnection
from agl_streams.doctor.findings import Finding, age, ok
from agl_streams.errors import CommandFailed
from agl_streams.keys import ShardKeys, unescape
from agl_streams.library import SCHEMA
from agl_streams.projections import US_PER_S
from agl_streams.store.base import BEGIN_WITHIN_MS

BEHIND: Final = 10_000
"""Events not folded yet, with an aggregator at work: it folds as many in well under a second."""
ASKED_WITHIN_S: Final = 60.0
"""Runners ask for work and renew leases far more often."""
PENDING_MS: Final = 4 * BEGIN_WITHIN_MS
LOOKED_AT: Final = 1000
"""Open rollouts of each status that are looked at one by one."""
MS_PER_S: Final = 1000
OPEN: Final = ("preparing", "running")
WAITING: Final = ("queuing", "requeuing")


async def examine_namespace(connection: RedisConnection, settings: Settings) -> list[Finding]:
    """Look at all shards. What does not exist is not made."""
    namespace = settings.namespace
    meta = ShardKeys(namespace, 0).meta
    try:
        schema, shards = cast("list[bytes | None]", await connection.execute("HMGET", meta, "schema", "shards"))
    except CommandFailed as error:
        return [
            Finding(
                "namespace", "problem", f"{meta} is no hash: {error.detail}",
                "a key of somebody else stands where ours go", "use another AGL_NAMESPACE or another database",
            )
        ]  # fmt: skip
    if schema is None or shards is None:
        return [
            Finding(
                "namespace", "warning", f"there is no namespace {namespace!r}",
                "nothing has been written under this name, or it was flushed",
                "check AGL_NAMESPACE; the first process that connects makes it",
            )
        ]  # fmt: skip
    findings = list(_fits(settings, int(schema), int(shards)))
    for shard in range(int(shards)):
        where = f"shard {shard}" if int(shards) > 1 else ""
        findings += await _Shard(connection, settings, ShardKeys(namespace, shard), where).examine()
    return findings


def _fits(settings: Settings, schema: int, shards: int) -> Iterator[Finding]:
    found = f"{settings.namespace!r}: schema {schema}, {shards} shards"
    if schema > SCHEMA:
        yield Finding(
            "namespace", "problem", f"{found}; this release knows schema {SCHEMA}",
            "a newer release has written here, and this one refuses to", "upgrade agl-streams here",
        )  # fmt: skip
    elif shards != settings.shards:
        yield Finding(
            "namespace", "problem", f"{found}, and AGL_SHARDS={settings.shards}",
            "no process with this setting connects", f"set AGL_SHARDS={shards}, or use another AGL_NAMESPACE",
        )  # fmt: skip
    else:
        yield ok("namespace", found)


class _Shard:
    """One shard, looked at."""

    def __init__(self, connection: RedisConnection, settings: Settings, keys: ShardKeys, where: str) -> None:
        self._connection = connection
        self._settings = settings
        self._keys = keys
        self._where = where

    async def examine(self) -> list[Finding]:
        """All checks."""
        now_s = await self._now_s()
        return [
            await self._group(self._keys.log, "aggregator", "sums of spans stand still"),
            await self._group(self._keys.tasks, "runners", "no runner is given work"),
            await self._watch(now_s),
            await self._queue(now_s),
            await self._pending(),
            await self._overdue(now_s),
            await self._unlimited(),
            await self._dead(),
        ]

    async def _ask(self, *args: str | int | float) -> Any:
        return await self._connection.execute(*args, near=self._keys.meta)

    async def _now_s(self) -> float:
        seconds, microseconds = cast("list[bytes]", await self._connection.execute("TIME", near=self._keys.meta))
        return int(seconds) + int(microseconds) / US_PER_S

    def _bad(self, check: str, found: str, means: str, todo: str, *, problem: bool = True) -> Finding:
        return Finding(check, "problem" if problem else "warning", found, means, todo, self._where)

    def _ok(self, check: str, found: str) -> Finding:
        return ok(check, found, self._where)

    async def _group(self, stream: str, group: str, means: str) -> Finding:
        groups: list[list[bytes]] = []
        if await self._ask("EXISTS", stream):
            groups = await self._ask("XINFO", "GROUPS", stream)
        names = [dict(zip(one[::2], one[1::2], strict=True))[b"name"].decode() for one in groups]
        if group in names:
            return self._ok("groups", f"{stream} has the group {group}")
        return self._bad(
            "groups", f"{stream} has no group {group}", f"{means} until it is there",
            "nothing if parts are running: the next that reads makes it again. Find out who destroyed it",
        )  # fmt: skip

    async def _watch(self, now_s: float) -> Finding:
        """Aggregator and watchdog are one part, so who watches folds as well."""
        n, folded = await self._ask("HMGET", self._keys.meta, "n", "folded")
        lag = int(n or 0) - int(folded or 0)
        ran = await self._ask("HGET", self._keys.payload("live:watch"), "ran")
        away_s = now_s - int(ran) / US_PER_S if ran else None
        seen = "never" if away_s is None else f"{age(away_s)} ago"
        found = f"{lag:,} events not folded; the watchdog looked {seen}"
        if away_s is None or away_s > self._settings.lease_seconds:
            return self._bad(
                "aggregator", found, "nobody adds up spans, ends what is overdue or puts lost work back on the queue",
                "start `agl-streams aggregate`, or `agl-streams serve` with its aggregator",
                problem=lag > 0 or await self._has_work(),
            )  # fmt: skip
        if lag > BEHIND:
            return self._bad(
                "aggregator", found, "sums are behind", "look at the log of the aggregator; start a second one",
                problem=False,
            )  # fmt: skip
        return self._ok("aggregator", found)

    async def _has_work(self) -> bool:
        counts = [await self._ask("ZCARD", self._keys.status(status)) for status in (*OPEN, *WAITING)]
        return any(counts)

    async def _queue(self, now_s: float) -> Finding:
        length = await self._ask("XLEN", self._keys.tasks)
        waiting = sum([await self._ask("ZCARD", self._keys.status(status)) for status in WAITING])
        if length < waiting:
            return self._bad(
                "queue", f"{waiting:,} rollouts wait, and the queue has {length:,} entries",
                "somebody trimmed the stream or deleted from it",
                "nothing: the watchdog puts them back. Find out who did it",
            )  # fmt: skip
        if not length:
            return self._ok("queue", "empty")
        oldest = (await self._ask("XRANGE", self._keys.tasks, "-", "+", "COUNT", 1))[0][0]
        found = f"{length:,} wait, the oldest for {age(now_s - int(oldest.split(b'-')[0]) / MS_PER_S)}"
        newest = await self._ask("ZRANGE", self._keys.live_workers, 0, 0, "REV", "WITHSCORES")
        if newest and now_s - float(newest[1]) / US_PER_S <= ASKED_WITHIN_S:
            return self._ok("queue", found)
        return self._bad(
            "queue", f"{found}; no runner has been heard of for {ASKED_WITHIN_S:.0f} s", "nobody takes them",
            "start `agl-streams worker`", problem=False,
        )  # fmt: skip

    async def _pending(self) -> Finding:
        stream = self._keys.tasks
        try:
            rows = await self._ask("XPENDING", stream, "runners", "IDLE", PENDING_MS, "-", "+", LOOKED_AT)
            summary = await self._ask("XPENDING", stream, "runners")
        except CommandFailed as error:
            if error.code != "NOGROUP":
                raise
            return self._ok("pending", "nothing: there is no group")
        held = {unescape(name.decode()): int(count) for name, count in summary[3] or ()}
        shown = ", ".join(f"{name} has {count:,}" for name, count in sorted(held.items())[:5])
        if not rows:
            return self._ok("pending", shown or "no runner holds what it has not begun")
        return self._bad(
            "pending", f"{len(rows)} entries were handed out and not begun for {PENDING_MS / MS_PER_S:.0f} s: {shown}",
            "their runners are gone or hang, and no watchdog has put them back",
            "start `agl-streams aggregate`", problem=False,
        )  # fmt: skip

    async def _overdue(self, now_s: float) -> Finding:
        """A deadline that has passed is judged at the next look; a heartbeat may have moved it meanwhile."""
        limit = round((now_s - self._settings.lease_seconds) * US_PER_S)
        deadlines = self._keys.payload("live:deadlines")
        overdue = await self._ask("ZCOUNT", deadlines, "-inf", limit)
        if not overdue:
            return self._ok("deadlines", f"{await self._ask('ZCARD', deadlines):,} attempts have one, none has passed")
        return self._bad(
            "deadlines", f"{overdue:,} attempts should have been looked at more than a lease ago",
            "their runners may be gone, and nobody notices", "start `agl-streams aggregate`",
        )  # fmt: skip

    async def _unlimited(self) -> Finding:
        count = looked = 0
        for status in OPEN:
            ids = [one.decode() for one in await self._ask("ZRANGE", self._keys.status(status), 0, LOOKED_AT - 1)]
            latest = [(one, await self._ask("HGET", self._keys.rollout(one), "latest")) for one in ids]
            members = [f"{one}:{attempt.decode()}" for one, attempt in latest if attempt]
            looked += len(members)
            if members:
                scores = await self._ask("ZMSCORE", self._keys.payload("live:deadlines"), *members)
                count += sum(score is None for score in scores)
        if not count:
            return self._ok("leases", f"each of {looked:,} open attempts has a limit")
        return self._bad(
            "leases", f"{count:,} of {looked:,} open attempts have no lease and no limit",
            "if their runner is gone they stay open for ever",
            "have runners give lease_seconds or send heartbeats; end these with `agl-streams cancel`", problem=False,
        )  # fmt: skip

    async def _dead(self) -> Finding:
        count = await self._ask("XLEN", self._keys.dead)
        if not count:
            return self._ok("dead letters", "none")
        return self._bad(
            "dead letters", f"{count:,} rollouts were given up", "each of their runners was lost while it had them",
            "`agl-streams dead ls` shows them, `agl-streams dead requeue` tries again", problem=False,
        )  # fmt: skip
