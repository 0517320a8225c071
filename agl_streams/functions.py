"""One typed wrapper per command of the functions library; the only place that calls FCALL.

Every writing command is safe to repeat, so the connection may send it again after a lost reply. A server that lost the
library (``FUNCTION FLUSH``, a failover) or the namespace (``FLUSHALL``) gets them again and the command is repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from agl_streams.appending import Group, NewSpan, SpanAppender
from agl_streams.connection import Arg, RedisConnection, Reply
from agl_streams.errors import CommandFailed, StoreUnavailable, outcome_error
from agl_streams.function_types import ExpireResult, FoldResult, NewRollout
from agl_streams.keys import ShardKeys
from agl_streams.library import LEAVE_LIMIT, Library, library
from agl_streams.logger import get_logger
from agl_streams.projections import US_PER_S, View

TRIES: Final = 20  # of one call, while the server loses functions or namespace before it is repeated
TOKEN_BYTES: Final = 8  # tells a repeat of a request from any other request
ENQUEUE_LIMIT: Final = 50
SPANS_LIMIT: Final = 200
SPANS_LIMIT_BYTES: Final = 1024 * 1024
FOLD_LIMIT: Final = 100  # of one attempt each: four keys are read and written for one event
EXPIRE_LIMIT: Final = 20  # ending a lost attempt writes a dozen keys: some 100 µs each
READ_LIMIT: Final = 100
REPLAY_LIMIT: Final = 50
RETIRE_LIMIT: Final = 50  # workers forgotten in one call: some 30 µs each
# One call never works longer than about 2 ms, so that no client waits for another's batch. Wrappers loop over these.

_log = get_logger()
_T = TypeVar("_T")


class Send(Protocol):
    """How a command is sent: ``near`` a key, to the node that has it."""

    async def __call__(self, *args: Arg, near: Arg) -> Reply: ...


def new_token() -> str:
    """A token for one request, the same on all its repeats."""
    return secrets.token_hex(TOKEN_BYTES)


class ShardFunctions:
    """The commands of one shard."""

    def __init__(self, connection: RedisConnection, keys: ShardKeys, shards: int) -> None:
        self.keys = keys
        self._connection = connection
        self._shards = shards
        self.clock_us: Callable[[], int] | None = None
        """Only tests set it; the server's own TIME rules otherwise."""
        # A write that waits for replicas has a way of its own; one that does not pays nothing for it.
        self._send_write = self._replicated if connection.min_replicas else connection.execute
        self._appender = SpanAppender(self._append, spans_limit=SPANS_LIMIT, bytes_limit=SPANS_LIMIT_BYTES)
        self.use(library())

    def use(self, chosen: Library) -> None:
        """Call the functions of another build of the library (tests build variants with faults)."""
        self._library = chosen
        self._names = {name: chosen.function(name).encode() for name in chosen.commands}

    async def load(self) -> None:
        """Load the library where it is missing, and make or check the namespace.

        Raises:
            WrongShardCount, Upgrade, ForeignKey: the namespace does not fit.
        """
        await self._load_library()
        await self._write("setup", self._shards)

    async def execute(self, *args: Arg) -> Reply:
        """A plain command on one of the shard's keys, on the node that holds them. Safe to repeat."""
        return await self._connection.execute(*args)

    async def time_us(self) -> int:
        """The time by which the commands judge, Unix microseconds: clocks of machines disagree."""
        if self.clock_us is not None:
            return self.clock_us()
        seconds, microseconds = cast("list[bytes]", await self._connection.execute("TIME", near=self.keys.meta))
        return int(seconds) * US_PER_S + int(microseconds)

    async def enqueue(self, rollouts: Sequence[NewRollout]) -> list[View]:
        """Put rollouts on the queue in order; one that exists is returned as it is."""
        views: list[View] = []
        for batch in _batches(rollouts, ENQUEUE_LIMIT):
            views += await self._write("enqueue", *[arg for rollout in batch for arg in rollout])
        return views

    async def start_rollout(self, rollout: NewRollout, attempt_id: str, worker: str, lease_us: str) -> View:
        """Make a rollout outside the queue, with its first attempt open."""
        return (await self._write("start_rollout", worker, lease_us, attempt_id, *rollout))[0]

    async def start_attempt(self, rollout_id: str, attempt_id: str, worker: str, lease_us: str) -> View:
        """Open one more attempt."""
        return (await self._write("start_attempt", worker, lease_us, attempt_id, rollout_id))[0]

    async def claim(
        self, attempt_ids: Sequence[str], worker: str, lease_us: str, token: str | None = None
    ) -> list[View]:
        """Take up to ``len(attempt_ids)`` rollouts off the queue without blocking.

        With the token and attempt ids of an earlier call, what that one was given comes first.
        """
        return await self._write("claim", worker, lease_us, token or new_token(), *attempt_ids)

    async def claimed(self, token: str, attempt_ids: Sequence[str]) -> list[View]:
        """What a `claim` with this token and these attempt ids was given. Takes nothing."""
        return await self._read("claimed", token, *attempt_ids)

    async def begin(self, entries: Sequence[tuple[str, str, str]], worker: str, lease_us: str) -> list[View | None]:
        """Open an attempt for each (entry id, rollout, attempt id) that a reader was handed; None where void."""
        return await self._write("begin", worker, lease_us, *[part for entry in entries for part in entry])

    async def release(self, entries: Sequence[tuple[str, str]]) -> int:
        """Give (entry id, rollout) pairs back; returns how many were still waiting."""
        return (await self._write("release", *[part for entry in entries for part in entry]))[0]

    async def leave(self, worker: str) -> int:
        """Give back what a consumer was handed and has not begun, and remove it from the group; returns how many."""
        given_back = 0
        while True:
            count, seen = await self._write("leave", worker)
            given_back += count
            if seen < LEAVE_LIMIT:
                return given_back

    async def append_spans(
        self, rollout_id: str, attempt_id: str, spans: Sequence[NewSpan], token: str | None = None
    ) -> list[int | None]:
        """Store spans of one attempt; per span its sequence number, or None for one that was there before.

        One that an earlier call with the same token brought gets its number again.
        """
        numbers: list[int | None] = []
        token = token or new_token()
        for place, batch in enumerate(_span_batches(spans)):
            # A token for each batch: a span id given twice in one call is new once, in whatever batches it stands.
            mark = f"{token}-{place}" if place else token
            numbers += await self._appender.append(Group.of(rollout_id, attempt_id, batch, mark))
        return numbers

    def append_call(self, rollout_id: str, attempt_id: str, spans: Sequence[NewSpan]) -> tuple[Arg, ...]:
        """The bare command that `append_spans` sends, for a benchmark that sends it through another client."""
        group = Group.of(rollout_id, attempt_id, spans, new_token())
        function = self._names["append_spans"]
        return (b"FCALL", function, 1, self.keys.meta, b"", rollout_id, attempt_id, group.length, *group.args)

    async def _append(self, args: list[Arg]) -> list[Any]:
        return await self._write("append_spans", *args)

    async def admit(self, rollout_id: str, attempt_id: str, count: int = 1, *, check: bool) -> int:
        """The first of ``count`` sequence numbers; with ``check`` only for an open, newest attempt."""
        reply = await self._write("admit", rollout_id, attempt_id, count, "1" if check else "")
        return int(reply[0])

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        status: str = "",
        worker: str = "",
        heartbeat_us: str = "",
        reason: str = "",
        body_version: str = "",
        body: bytes = b"",
        max_deliveries: int,
        token: str | None = None,
    ) -> View:
        """Record a report on an attempt; '' leaves a field as it is. With the token of an earlier call, nothing."""
        return (
            await self._write(
                "update_attempt", rollout_id, attempt_id, status, worker, heartbeat_us, reason, body_version, body,
                max_deliveries, token or new_token(),
            )
        )[0]  # fmt: skip

    async def update_rollout(
        self,
        rollout_id: str,
        *,
        status: str = "",
        body_version: str = "",
        body: bytes = b"",
        fields: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> View:
        """Replace fields of a rollout; a field given as '' becomes null. With the token of an earlier call, nothing."""
        pairs = [part for pair in (fields or {}).items() for part in pair]
        token = token or new_token()
        return (await self._write("update_rollout", rollout_id, body_version, body, status, token, *pairs))[0]

    async def cancel(self, rollout_id: str, reason: str, token: str | None = None) -> View:
        """End a rollout on purpose. With the token of an earlier call, nothing."""
        return (await self._write("cancel", rollout_id, reason, token or new_token()))[0]

    async def requeue_dead(self, rollout_id: str, token: str) -> View:
        """Put a rollout that was given up on the queue again. With the token of an earlier call, nothing."""
        return (await self._write("requeue_dead", rollout_id, token))[0]

    async def drop_dead(self, rollout_id: str, token: str) -> View:
        """Take a rollout that was given up off the dead stream. With the token of an earlier call, nothing."""
        return (await self._write("drop_dead", rollout_id, token))[0]

    async def renew(self, attempts: Sequence[tuple[str, str]], lease_us: str) -> list[str]:
        """Extend leases of (rollout, attempt) pairs; per pair renewed, superseded, ended or not_found_attempt."""
        args = [part for rollout_id, attempt_id in attempts for part in (rollout_id, attempt_id, lease_us)]
        return [word.decode() for word in await self._write("renew", *args)]

    async def heartbeat(self, worker: str, stats: bytes, lease_us: str) -> View:
        """Store a worker's heartbeat; ``stats`` empty leaves them as they are."""
        return (await self._write("heartbeat", worker, stats, lease_us))[0]

    async def retire_workers(self, workers: Sequence[str], idle_us: str) -> list[str]:
        """Forget those of these workers (escaped ids) that have been idle for so long; returns whom."""
        retired: list[str] = []
        for batch in _batches(workers, RETIRE_LIMIT):
            retired += [worker.decode() for worker in await self._write("retire_workers", idle_us, *batch)]
        return retired

    async def fold(self, limit: int = FOLD_LIMIT) -> FoldResult:
        """Add up the next events.

        Raises:
            Gap: the log misses an event.
            Upgrade: an event of a type that this release does not know.
        """
        events, last_id = await self._write("fold", limit)
        return FoldResult(int(events), last_id.decode() or None, int(events) >= limit)

    async def expire(
        self, lease_us: str, begin_ms: int, max_deliveries: int, limit: int = EXPIRE_LIMIT
    ) -> ExpireResult:
        """End what is overdue and put back what was never begun."""
        ended, returned, nearest, more = await self._write("expire", limit, lease_us, begin_ms, max_deliveries)
        return ExpireResult(ended, returned, int(nearest) if nearest else None, more == b"1")

    async def resources(self, resources_id: str, content: bytes, token: str | None = None) -> View:
        """Store a version of a bundle of resources; a repeat with the same token stores no second one."""
        return await self._write("resources", resources_id, token or new_token(), content)

    async def replay(self, events: Sequence[tuple[str, Sequence[Arg], Sequence[Arg]]]) -> int:
        """Write recorded events again: (event id, fields and values, payload names and bytes)."""
        applied = 0
        for batch in _batches(events, REPLAY_LIMIT):
            args: list[Arg] = []
            for event_id, fields, payloads in batch:
                args += (event_id, len(fields), *fields, len(payloads), *payloads)
            applied += (await self._write("replay", *args))[0]
        return applied

    async def arm(self, rollout_ids: Sequence[str]) -> int:
        """Give the open attempts of these rollouts a full lease, after a rebuild."""
        armed = 0
        for batch in _batches(rollout_ids, READ_LIMIT):
            armed += (await self._write("arm", *batch))[0]
        return armed

    async def read_rollouts(self, rollout_ids: Sequence[str]) -> list[View | None]:
        """Rollouts with their newest attempt; None where unknown."""
        return await self._read_many("read_rollouts", rollout_ids)

    async def read_statuses(self, rollout_ids: Sequence[str]) -> list[str | None]:
        """Statuses of rollouts; None where unknown."""
        return [word and word.decode() for word in await self._read_many("read_statuses", rollout_ids)]

    async def read_attempts(self, rollout_id: str, first: int, last: int) -> list[View]:
        """Attempts of a rollout from number ``first`` to ``last``, at most READ_LIMIT of them."""
        return await self._read("read_attempts", rollout_id, first, min(last, first + READ_LIMIT - 1))

    async def read_attempt(self, rollout_id: str, attempt_id: str) -> View:
        """One attempt."""
        return (await self._read("read_attempt", rollout_id, attempt_id))[0]

    async def read_workers(self, workers: Sequence[str]) -> list[View | None]:
        """Workers by escaped id; None where unknown."""
        return await self._read_many("read_workers", workers)

    async def read_holders(self, rollout_ids: Sequence[str]) -> list[str | None]:
        """Per rollout the worker (escaped id) of its newest attempt where that is open; None elsewhere."""
        return [worker and worker.decode() for worker in await self._read_many("read_holders", rollout_ids)]

    async def read_resources(self, resources_ids: Sequence[str]) -> list[View | None]:
        """Bundles by escaped id; None where unknown."""
        return await self._read_many("read_resources", resources_ids)

    async def read_latest_resources(self) -> View | None:
        """The bundle updated last."""
        views = await self._read("read_resources")
        return views[0] if views else None

    async def _read_many(self, command: str, ids: Sequence[str]) -> list[Any]:
        found: list[Any] = []
        for batch in _batches(ids, READ_LIMIT):
            found += await self._read(command, *batch)
        return found

    async def _write(self, command: str, *args: Arg) -> list[Any]:
        clock = self.clock_us() if self.clock_us else b""
        return await self._call(self._send_write, b"FCALL", command, clock, *args)

    async def _read(self, command: str, *args: Arg) -> list[Any]:
        return await self._call(self._connection.execute, b"FCALL_RO", command, *args)

    async def _replicated(self, *call: Arg, near: Arg) -> Reply:
        return await self._connection.execute_replicated(call, self._bare("mark"), near)

    def _bare(self, command: str) -> tuple[Arg, ...]:
        """The call of a command without arguments."""
        return (b"FCALL", self._names[command], 1, self.keys.meta)

    async def _call(self, send: Send, verb: bytes, command: str, *args: Arg) -> list[Any]:
        call = (verb, self._names[command], 1, self.keys.meta, *args)
        for _ in range(TRIES):
            try:
                reply = cast("list[Any]", await send(*call, near=self.keys.meta))
            except CommandFailed as error:
                await self._recover(error, command)
                continue
            if reply[0] == b"ok":
                return reply[1:]
            if reply[0] != b"no_namespace":
                raise outcome_error(reply[0].decode(), command, [_shown(arg) for arg in (*reply[1:], *args)])
            _log.warning("namespace_recreated", prefix=self.keys.prefix, command=command)
            await self.load()
        raise StoreUnavailable(
            f"{command} on {self.keys.prefix}* found its function or namespace gone {TRIES} times, although they were "
            "made again each time: something flushes the server over and over"
        )

    async def _load_library(self) -> None:
        # Asked for first: a server at its maxmemory refuses to load, and what frees its memory must still connect.
        # On the node of this shard: each primary needs it, and so does one that a shard has moved to.
        near = self.keys.meta
        if not await self._connection.execute("FUNCTION", "LIST", "LIBRARYNAME", self._library.name, near=near):
            try:
                await self._connection.execute("FUNCTION", "LOAD", self._library.source, near=near)
            except CommandFailed as error:
                if "already exists" not in error.detail:
                    raise

    async def _recover(self, error: CommandFailed, command: str) -> None:
        """Load the library into a server that lost it, so that the call can be repeated; name any other failure."""
        if error.code == "WRONGTYPE" or "WRONGTYPE" in error.detail:
            raise outcome_error("foreign_key", command, [self.keys.prefix, error.detail]) from error
        if "Function not found" not in error.detail:
            raise error
        _log.warning("functions_reloaded", library=self._library.name)
        await self._load_library()


def _shown(arg: object) -> str:
    return arg.decode(errors="replace") if isinstance(arg, bytes) else str(arg)


def _batches(items: Sequence[_T], size: int) -> list[Sequence[_T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _span_batches(spans: Sequence[NewSpan]) -> list[Sequence[NewSpan]]:
    """Batches of at most SPANS_LIMIT spans and about SPANS_LIMIT_BYTES; a larger single span goes alone."""
    if len(spans) == 1:
        return [spans]
    batches: list[list[NewSpan]] = []
    size = SPANS_LIMIT_BYTES
    for span in spans:
        if size + len(span.payload) > SPANS_LIMIT_BYTES or len(batches[-1]) == SPANS_LIMIT:
            batches.append([])
            size = 0
        batches[-1].append(span)
        size += len(span.payload)
    return cast("list[Sequence[NewSpan]]", batches)
