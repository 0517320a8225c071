"""The state of a shard as a plain fold of its log: what the server's ``apply`` and ``fold`` do, in Python.

It mirrors ``lua/_4_apply.lua``, the two after it and ``fold.lua`` function by function, and holds rows under the
same field names and as the same text, so that the two can be compared. Seeing a past moment is folding up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from agl_streams.errors import Gap, Upgrade
from agl_streams.events import Event
from agl_streams.lifecycle import ATTEMPT_DATED, ATTEMPT_OPEN, FINISHED
from agl_streams.projections import SUMS

Row = dict[str, str]
"""The fields of a projection that are present, as text; times are microseconds since 1970."""
AttemptKey = tuple[str, str]
"""Rollout id and attempt id."""


@dataclass(slots=True)
class State:
    """What is true after the events so far.

    Attributes:
        n, time_us, last_id: number, time and id of the last event.
        rollouts, attempts, workers, resources: the projections, sums included; worker and resources ids are escaped.
        workers_since: worker -> number of the event that made it.
        resources_at: resources id -> number of the event of its newest version.
        queue: entry id -> rollout, oldest first: exactly the queued rollouts.
        finished: event id -> rollout and the status that it finished with, in order.
        dead: event id -> rollout and reason, for those given up.
        spans: attempt -> span id -> id of the event that brought it.
        attempts_begun, spans_stored: totals of the shard.
    """

    n: int = 0
    time_us: int = 0
    last_id: str = ""
    rollouts: dict[str, Row] = field(default_factory=dict[str, Row])
    attempts: dict[AttemptKey, Row] = field(default_factory=dict[AttemptKey, Row])
    workers: dict[str, Row] = field(default_factory=dict[str, Row])
    workers_since: dict[str, int] = field(default_factory=dict[str, int])
    resources: dict[str, Row] = field(default_factory=dict[str, Row])
    resources_at: dict[str, int] = field(default_factory=dict[str, int])
    queue: dict[str, str] = field(default_factory=dict[str, str])
    finished: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    dead: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    spans: dict[AttemptKey, dict[str, str]] = field(default_factory=dict[AttemptKey, dict[str, str]])
    attempts_begun: int = 0
    spans_stored: int = 0


def fold(events: Iterable[Event], state: State | None = None) -> State:
    """Fold events, in the order of the log, into a state; an empty one unless a state to go on from is given.

    Raises:
        Gap, Upgrade: as `advance`.
    """
    state = State() if state is None else state
    for event in events:
        advance(state, event)
    return state


def advance(state: State, event: Event) -> None:
    """Fold one event into the state.

    Raises:
        Gap: it is not the one after the last.
        Upgrade: its type belongs to a newer release.
    """
    if event.n != state.n + 1:
        raise Gap(f"event {event.id} has number {event.n}, and {state.n + 1} was to come: the log misses an event")
    apply = _BY_TYPE.get(event.type)
    if apply is None:
        raise Upgrade(f"event {event.id} is of type {event.type!r}, which this release does not know: upgrade it")
    apply(state, event)
    state.n, state.time_us, state.last_id = event.n, event.time_us, event.id


_KEPT: Final = ("mode", "resources", "timeout", "unresponsive", "retry")
_CHANGED: Final = (*_KEPT, "max", "deliveries", "lost")


def _created(state: State, event: Event) -> None:
    e = event.fields
    queued = event.type == "rollout_enqueued"
    row = {
        "status": "queuing" if queued else "preparing",
        "n": str(event.n),
        "start": str(event.time_us),
        "body": e["body"],
        "max": e["max"],
        "deliveries": "0",
    }
    _copy(e, row, _KEPT)
    if queued:
        row["entry"] = event.id
        state.queue[event.id] = e["rollout"]
    state.rollouts[e["rollout"]] = row


def _rollout(state: State, event: Event) -> None:
    """The rollout's part of any later event: status, queue entry, counters, and the streams of finished and dead."""
    e, row = event.fields, state.rollouts[event.fields["rollout"]]
    for name in _CHANGED:
        if e.get(name) == "":
            row.pop(name, None)
    _copy(e, row, _CHANGED)
    if "rollout_body" in e:
        row["body"] = e["rollout_body"]
    if "unqueue" in e:
        state.queue.pop(e["unqueue"], None)
        row.pop("entry", None)
    if "undead" in e:
        state.dead.pop(e["undead"], None)
        row.pop("dead", None)
    if "to" in e:
        _move(state, event, row)
    if "requeue" in e:
        state.queue[event.id] = e["rollout"]
        row["entry"] = event.id


def _move(state: State, event: Event, row: Row) -> None:
    e, old = event.fields, row["status"]
    row["status"] = e["to"]
    if e["to"] not in FINISHED:
        row.pop("end", None)
        row.pop("reason", None)
        return
    row["end"] = str(event.time_us)
    _replace(row, "reason", e.get("reason"))
    if old not in FINISHED:
        state.finished[event.id] = (e["rollout"], e["to"])
    if "dead" in e:
        state.dead[event.id] = (e["rollout"], e["reason"])
        row["dead"] = event.id


def _attempt_started(state: State, event: Event) -> None:
    e = event.fields
    row = {"seq": e["seq"], "status": "preparing", "start": str(event.time_us)}
    _copy(e, row, ("worker", "lease"))
    state.attempts[e["rollout"], e["attempt"]] = row
    state.rollouts[e["rollout"]] |= {"attempts": e["seq"], "latest": e["attempt"], f"a:{e['seq']}": e["attempt"]}
    state.attempts_begun += 1
    _rollout(state, event)
    if "worker" in e:
        _worker(state, event, e["worker"], "preparing")


def _attempt_moved(state: State, event: Event) -> None:
    e, row = event.fields, state.attempts[event.fields["rollout"], event.fields["attempt"]]
    _copy(e, row, ("worker", "body", "heartbeat"))
    if "status" in e:
        row["status"] = e["status"]
        _replace(row, "end", str(event.time_us) if e["status"] in ATTEMPT_DATED else None)
        _replace(row, "reason", e.get("reason"))
    _rollout(state, event)
    if "worker" in row and ("status" in e or "worker" in e):
        _worker(state, event, row["worker"], row["status"])


def _worker(state: State, event: Event, worker: str, status: str) -> None:
    """A worker's row shows the newest of its attempts that began, and changes with the end of that one only."""
    e = event.fields
    state.workers_since.setdefault(worker, event.n)
    row = state.workers.get(worker, {})
    if status in ATTEMPT_OPEN:
        if "worker" not in e and row.get("status") == "busy":
            return
        shown = {"status": "busy", "busy": str(event.time_us), "rollout": e["rollout"], "attempt": e["attempt"]}
        row |= {**shown, "n": str(event.n)}
        if event.type == "attempt_started" and "deliveries" in e:
            row["dequeue"] = str(event.time_us)
        state.workers[worker] = row
    elif (row.get("rollout"), row.get("attempt")) == (e["rollout"], e["attempt"]):
        now = "idle" if status in ("succeeded", "failed") else "unknown"
        row |= {"status": now, "idle": str(event.time_us), "n": str(event.n)}
        del row["rollout"], row["attempt"]


def _worker_idle(state: State, event: Event) -> None:
    worker, time = event.fields["worker"], str(event.time_us)
    state.workers_since.setdefault(worker, event.n)
    row = state.workers.setdefault(worker, {})
    row |= {"status": "idle", "idle": time, "dequeue": time, "n": str(event.n)}
    row.pop("rollout", None)
    row.pop("attempt", None)


def _worker_retired(state: State, event: Event) -> None:
    state.workers_since.pop(event.fields["worker"], None)
    state.workers.pop(event.fields["worker"], None)


def _spans(state: State, event: Event) -> None:
    e = event.fields
    attempt = (e["rollout"], e["attempt"])
    state.spans.setdefault(attempt, {}).update(dict.fromkeys(e["ids"].split("\n"), event.id))
    state.spans_stored += int(e["count"])
    row = state.attempts[attempt]
    row["heartbeat"] = str(max(int(row.get("heartbeat", "0")), event.time_us))
    for sums in (row, state.rollouts[e["rollout"]]):
        _add_sums(sums, e)


def _add_sums(row: Row, e: dict[str, str]) -> None:
    """The aggregator's part: sums, extremes, and of the rewards the last one in the order of the log."""
    _pick(row, "spans", e["count"], int.__add__)
    for name, value in zip(SUMS, e["sums"].split(",") if "sums" in e else (), strict=False):
        if name == "reward":
            row[name] = value
        elif value != "0":
            _pick(row, name, value, int.__add__)
    _pick(row, "first", e.get("first"), min)
    _pick(row, "last", e.get("last"), max)
    _pick(row, "sequence", max(e["numbers"].split(","), key=int), max)


def _resources(state: State, event: Event) -> None:
    e = event.fields
    row = {"version": e["version"], "create": e["create"], "update": str(event.time_us)}
    state.resources[e["resources"]] = row
    state.resources_at[e["resources"]] = event.n


def _nothing(state: State, event: Event) -> None:
    """Events that tell why something was not done."""


_BY_TYPE: Final[dict[str, Callable[[State, Event], None]]] = {
    "rollout_enqueued": _created,
    "rollout_started": _created,
    "rollout_updated": _rollout,
    "rollout_dead": _rollout,
    "dead_requeued": _rollout,
    "dead_dropped": _rollout,
    "redelivered": _rollout,
    "attempt_started": _attempt_started,
    "attempt_running": _attempt_moved,
    "attempt_ended": _attempt_moved,
    "attempt_lost": _attempt_moved,
    "attempt_updated": _attempt_moved,
    "spans": _spans,
    "worker_idle": _worker_idle,
    "worker_retired": _worker_retired,
    "resources_updated": _resources,
    "grace": _nothing,
}


def _copy(e: dict[str, str], row: Row, names: tuple[str, ...]) -> None:
    """The named fields that the event has and that are not cleared."""
    row.update({name: e[name] for name in names if e.get(name)})


def _replace(row: Row, name: str, value: str | None) -> None:
    if value is None:
        row.pop(name, None)
    else:
        row[name] = value


def _pick(row: Row, name: str, value: str | None, choose: Callable[[int, int], int]) -> None:
    """Set a field to the choice between what it has and a new value; the one that is there where the other is not."""
    if value is not None:
        row[name] = str(choose(int(row[name]), int(value))) if name in row else value
