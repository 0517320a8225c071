"""The log read back, and a namespace built again from it: the proof that the log is the truth.

Payloads (bodies, resources, spans) are not in the log but beside it, in keys whose names the events give.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, cast

from agl_streams.errors import Gap, NamespaceError, WrongShardCount
from agl_streams.events import Event, decode
from agl_streams.lifecycle import ATTEMPT_OPEN
from agl_streams.store import StreamStore
from agl_streams.wire import Arg

PAGE: Final = 100  # events read in one step: with 200 spans of 400 B each, 8 MB
BATCH: Final = 100  # events written by one call, about 2 ms of the server's time
BATCH_BYTES: Final = 1024 * 1024  # payloads in one such call; a larger single one goes alone

Payloads = dict[str, bytes]
"""What travels beside an event, as ``apply`` takes it: name behind the shard's prefix -> bytes; of spans by span id."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did: events written, open attempts given a full lease."""

    events: int
    armed: int


async def read_history(store: StreamStore, shard: int) -> AsyncIterator[tuple[Event, Payloads]]:
    """Every event of a shard with its payloads, in order, in bounded steps.

    Raises:
        Gap: an event is missing in the log, or a payload beside it.
    """
    keys, after, n = store.functions(shard).keys, "-", 0
    while True:
        entries = cast("Any", await store.connection.execute("XRANGE", keys.log, after, "+", "COUNT", PAGE))
        events = [decode(entry_id, flat) for entry_id, flat in entries]
        for event in events:
            n += 1
            if event.n != n:
                raise Gap(f"{keys.log}: event {event.id} has number {event.n}, and {n} was to come; the log misses one")
        for event, payloads in zip(events, await _payloads(store, shard, events), strict=True):
            yield event, payloads
        if len(entries) < PAGE:
            return
        after = f"({events[-1].id}"


async def rebuild(source: StreamStore, target: StreamStore) -> Rebuilt:
    """Write every event of one namespace into another, empty one, apply it there, and fold.

    Durable content comes out equal. Live state starts anew: open attempts get a full lease.

    Raises:
        WrongShardCount: the two have different shard counts.
        NamespaceError: the target has events already.
        Gap, Upgrade: the source's log cannot be replayed.
    """
    if source.shards != target.shards:
        raise WrongShardCount(
            f"{source.settings.namespace!r} has {source.shards} shards and {target.settings.namespace!r} has "
            f"{target.shards}: rebuild into a namespace with AGL_SHARDS={source.shards}"
        )
    for shard in range(target.shards):
        await _check_empty(target, shard)
    done = [await _rebuild_shard(source, target, shard) for shard in range(source.shards)]
    return Rebuilt(sum(one.events for one in done), sum(one.armed for one in done))


async def _rebuild_shard(source: StreamStore, target: StreamStore, shard: int) -> Rebuilt:
    functions, events = target.functions(shard), 0
    open_attempts: set[tuple[str, str]] = set()
    batch: list[tuple[str, list[str], list[Arg]]] = []
    size = 0
    async for event, payloads in read_history(source, shard):
        weight = sum(map(len, payloads.values()))
        if batch and (len(batch) == BATCH or size + weight > BATCH_BYTES):
            events += await functions.replay(batch)
            batch, size = [], 0
        batch.append((event.id, event.flat(), [part for pair in payloads.items() for part in pair]))
        size += weight
        _note_open(open_attempts, event)
    if batch:
        events += await functions.replay(batch)
    while (await functions.fold()).more:
        pass
    armed = await functions.arm(sorted({rollout_id for rollout_id, _ in open_attempts}))
    return Rebuilt(events, armed)


def _note_open(attempts: set[tuple[str, str]], event: Event) -> None:
    """Keep track of the attempts that are open after an event."""
    if "attempt" not in event.fields:
        return
    attempt = (event.fields["rollout"], event.fields["attempt"])
    status = "preparing" if event.type == "attempt_started" else event.fields.get("status")
    if status in ATTEMPT_OPEN:
        attempts.add(attempt)
    elif status is not None:
        attempts.discard(attempt)


async def _check_empty(target: StreamStore, shard: int) -> None:
    log = target.functions(shard).keys.log
    length = await target.connection.execute("XLEN", log)
    if length:
        raise NamespaceError(
            f"the namespace {target.settings.namespace!r} has {length} events in {log}: a rebuild writes recorded "
            "events under their own ids, so give it an empty namespace"
        )


async def _payloads(store: StreamStore, shard: int, events: list[Event]) -> list[Payloads]:
    """The payloads of each event, in one exchange."""
    keys = store.functions(shard).keys
    names = [event.payload_names() for event in events]
    commands: list[tuple[Arg, ...]] = []
    for event, wanted in zip(events, names, strict=True):
        if event.type == "spans":
            commands.append(("HMGET", keys.spans(event.fields["rollout"], event.fields["attempt"]), *wanted))
        elif wanted:
            commands.append(("MGET", *[keys.payload(name) for name in wanted]))
    replies = iter(cast("list[list[bytes | None]]", await store.connection.pipeline(commands)) if commands else ())
    return [_named(event, wanted, next(replies) if wanted else []) for event, wanted in zip(events, names, strict=True)]


def _named(event: Event, names: list[str], values: list[bytes | None]) -> Payloads:
    found: Payloads = {}
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise Gap(f"event {event.id} ({event.type}): its payload {name!r} is gone; it cannot be replayed")
        found[name] = value
    return found
