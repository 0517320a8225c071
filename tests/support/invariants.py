"""What must be true of a namespace whose work is done, whatever happened on the way.

Every rollout is finished, once; no attempt is open; the queue is empty; events are numbered without a gap; and the
projections are what the log says, by the server's own ``apply`` and by the fold in Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from agl_streams.errors import Gap
from agl_streams.events import Event
from agl_streams.fold import State, fold
from agl_streams.lifecycle import ATTEMPT_OPEN, FINISHED
from agl_streams.replay import Payloads, read_history, rebuild
from agl_streams.store import StreamStore
from tests.support.addresses import server_urls
from tests.support.leaks import all_keys, foreign_keys, remove_namespace
from tests.support.raw import Raw
from tests.support.rebuild import differences, durable_content, folded_content
from tests.support.waiting import until

PATIENCE_S = 60.0  # a lease, an entry that was never begun (3 s) and a server that loads its data, on a busy machine
SHOWN_COMPLAINTS = 12
SHOWN_EVENTS = 40

History = list[tuple[Event, Payloads]]


@dataclass(frozen=True)
class Complaint:
    """A rule that does not hold.

    Attributes:
        text: what is wrong.
        rollout_id: of which rollout, if of one.
    """

    text: str
    rollout_id: str | None = None


async def wait_until_done(store: StreamStore, rollout_ids: Sequence[str]) -> None:
    """Wait until the rollouts are finished, nobody is watched any more, and the aggregator has folded all events.

    The aggregator and the watchdog must do it themselves: nothing is folded or expired here.
    """
    done = {one.rollout_id for one in await store.wait_for_rollouts(rollout_ids=rollout_ids, timeout=PATIENCE_S)}
    late = [one for one in rollout_ids if one not in done]
    await _fail(store, [Complaint(f"not finished within {PATIENCE_S} s", one) for one in late])
    for shard in range(store.shards):
        await until(lambda shard=shard: _is_quiet(store, shard), timeout_s=PATIENCE_S, what="a quiet shard")


async def check_invariants(store: StreamStore, rollout_ids: Sequence[str], *, spans: int | None = None) -> None:
    """Fail with every rule that does not hold, and the events of the rollouts concerned.

    Args:
        rollout_ids: all rollouts that were ever enqueued in the namespace, each exactly once.
        spans: each of them must have succeeded, with so many spans in the attempt that counts; None: in any way.
    """
    await _fail(store, [Complaint(line) for line in await _foreign_keys(store)])
    complaints = await _statuses(store, rollout_ids)
    complaints += await _finished_once(store, rollout_ids)
    for shard in range(store.shards):
        complaints += await _queue(store, shard)
        complaints += await _live_state(store, shard)
        complaints += await _log(store, shard, spans)
    if not complaints:  # a rebuild of something broken only says the same again
        complaints += await _rebuilt(store, rollout_ids)
    await _fail(store, complaints)


async def _is_quiet(store: StreamStore, shard: int) -> bool:
    keys = store.functions(shard).keys
    deadlines, meta = cast(
        "Any",
        await store.connection.pipeline(
            [("ZCARD", keys.payload("live:deadlines")), ("HMGET", keys.meta, "n", "folded")]
        ),
    )
    return deadlines == 0 and meta[0] == (meta[1] or b"0")


async def _foreign_keys(store: StreamStore) -> list[str]:
    lines: list[str] = []
    for server in server_urls(store.url):
        with Raw(server) as raw:
            lines += foreign_keys(all_keys(raw))
    return lines


async def _statuses(store: StreamStore, rollout_ids: Sequence[str]) -> list[Complaint]:
    complaints: list[Complaint] = []
    for shard in range(store.shards):
        functions = store.functions(shard)
        mine = [one for one in rollout_ids if store.functions_of(one) is functions]
        for rollout_id, status in zip(mine, await functions.read_statuses(mine), strict=True):
            if status not in FINISHED:
                complaints.append(Complaint(f"is {status!r}, not finished: it is lost", rollout_id))
    return complaints


async def _finished_once(store: StreamStore, rollout_ids: Sequence[str]) -> list[Complaint]:
    counts, expected = await store.finished_counts(), Counter(rollout_ids)
    return [
        Complaint(f"finished {counts.get(one, 0)} times instead of {expected[one]}", one)
        for one in sorted(counts.keys() | expected.keys())
        if counts.get(one, 0) != expected[one]
    ]


async def _queue(store: StreamStore, shard: int) -> list[Complaint]:
    keys = store.functions(shard).keys
    entries = cast("Any", await store.connection.execute("XRANGE", keys.tasks, "-", "+", "COUNT", SHOWN_COMPLAINTS))
    pending = cast("Any", await store.connection.execute("XPENDING", keys.tasks, "runners", "-", "+", SHOWN_COMPLAINTS))
    found = [Complaint(f"is still on the queue as {entry.decode()}", flat[1].decode()) for entry, flat in entries]
    return found + [Complaint(f"{entry.decode()} is pending for {who.decode()}") for entry, who, *_ in pending]


async def _live_state(store: StreamStore, shard: int) -> list[Complaint]:
    keys = store.functions(shard).keys
    deadlines, leases = cast(
        "list[list[bytes]]",
        await store.connection.pipeline(
            [("ZRANGE", keys.payload("live:deadlines"), 0, -1), ("HKEYS", keys.payload("live:leases"))]
        ),
    )
    left = [(*one.decode().split(":"), "deadline") for one in deadlines]
    left += [(*one.decode().split(":"), "lease") for one in leases]
    return [Complaint(f"its attempt {attempt} still has a {what}", rollout) for rollout, attempt, what in left]


async def _log(store: StreamStore, shard: int, spans: int | None) -> list[Complaint]:
    """The rules that are read off the log: numbers, open attempts, spans, and equality with the projections."""
    try:
        history = await _history(store, shard)
        state = fold(event for event, _ in history)
    except Gap as error:
        return [Complaint(str(error))]
    complaints = [
        Complaint(f"its attempt {attempt_id} is left {row['status']!r}", rollout_id)
        for (rollout_id, attempt_id), row in state.attempts.items()
        if row["status"] in ATTEMPT_OPEN
    ]
    if spans is not None:
        complaints += _results(state, spans)
    folded = folded_content(history, state, shard, store.shards)
    content = durable_content(store.url, store.settings.namespace)
    mine = {key: value for key, value in content.items() if key.startswith(f"{shard}:")}
    lines = differences(mine, folded, ("the server", "the fold of the log"))
    return complaints + [_about(line, state.rollouts) for line in lines]


def _results(state: State, spans: int) -> list[Complaint]:
    """Every rollout has succeeded, with every span of the attempt that counts."""
    complaints: list[Complaint] = []
    for rollout_id, row in state.rollouts.items():
        found = len(state.spans.get((rollout_id, row.get("latest", "")), {}))
        if row["status"] != "succeeded":
            complaints.append(Complaint(f"has {row['status']}: {row.get('reason')}", rollout_id))
        elif found != spans:
            complaints.append(Complaint(f"has {found} spans in {row['latest']} instead of {spans}", rollout_id))
    return complaints


async def _rebuilt(store: StreamStore, rollout_ids: Sequence[str]) -> list[Complaint]:
    before = durable_content(store.url, store.settings.namespace)
    async with _empty_copy(store) as target:
        await rebuild(store, target)
        after = durable_content(store.url, target.settings.namespace)
    lines = differences(before, after, ("the server", "a rebuild from the log"))
    return [_about(line, rollout_ids) for line in lines]


@asynccontextmanager
async def _empty_copy(store: StreamStore) -> AsyncGenerator[StreamStore]:
    """A store on an empty namespace beside the one given, which goes afterwards."""
    settings = store.settings.model_copy(update={"namespace": f"{store.settings.namespace}-rebuilt"})
    async with await StreamStore.connect(store.url, settings=settings) as target:
        yield target
    remove_namespace(store.url, settings.namespace)


def _about(line: str, rollout_ids: Collection[str]) -> Complaint:
    """A difference as a complaint, with the rollout that its key is about."""
    parts = (part.strip() for part in line.partition("[")[0].split(":"))
    return Complaint(line, next((part for part in parts if part in rollout_ids), None))


async def _history(store: StreamStore, shard: int) -> History:
    return [one async for one in read_history(store, shard)]


async def _fail(store: StreamStore, complaints: Sequence[Complaint]) -> None:
    """Fail with the complaints, if there are any, and the events of the rollouts that they name."""
    if not complaints:
        return
    shown = complaints[:SHOWN_COMPLAINTS]
    lines = [f"{len(complaints)} rules do not hold in {store.settings.namespace!r}:"]
    lines += [f"- rollout {one.rollout_id} {one.text}" if one.rollout_id else f"- {one.text}" for one in shown]
    for rollout_id in dict.fromkeys(one.rollout_id for one in shown if one.rollout_id):
        lines += [f"events of {rollout_id}:", *await events_of(store, rollout_id)]
    raise AssertionError("\n".join(lines))


async def events_of(store: StreamStore, rollout_id: str) -> list[str]:
    """The log's lines about a rollout, newest last."""
    lines: list[str] = []
    key = store.functions_of(rollout_id).keys.log
    for entry_id, flat in cast("Any", await store.connection.execute("XRANGE", key, "-", "+")):
        texts = [part.decode() for part in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        if fields.pop("rollout", None) == rollout_id:
            lines.append(f"  {entry_id.decode()} {fields.pop('type')} {fields}")
    return lines[-SHOWN_EVENTS:]
