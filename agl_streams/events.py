"""The vocabulary of the log: every event type, its fields and what it changes; and how an entry is read.

An event carries a decision: the resulting statuses, ids and times. Field values are text; times are integer
microseconds since 1970. Payloads (bodies, spans) are not in the log but beside it, under names that the event gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agl_streams.wire import Reply

COMMON: Final = {
    "type": "the event's type",
    "n": "dense number of the event in its shard, from 1",
    "time": "max(server time, time of the event before)",
}

_ROLLOUT: Final = {
    "rollout": "rollout id",
    "mode": "mode; '' clears it",
    "resources": "resources id; '' clears it",
    "timeout": "limit of an attempt's age, microseconds",
    "unresponsive": "limit of an attempt's silence, microseconds",
    "max": "max_attempts",
    "retry": "retry_condition, joined by commas",
}
_QUEUE: Final = {
    "to": "the rollout's new status",
    "unqueue": "id of the queue entry that is removed",
    "requeue": "'1': a queue entry is added under this event's id",
    "deliveries": "claims since the rollout was last queued on purpose",
    "lost": "attempts that use up none of max_attempts: lost with their runner, or made before dead_requeued",
    "dead": "'1': the rollout was given up and is put on the dead stream",
    "undead": "id of the entry of the dead stream that is removed",
    "reason": "why",
}
_ATTEMPT: Final = {"rollout": "rollout id", "attempt": "attempt id"}
_MOVE: Final = {
    **_ATTEMPT,
    "status": "the attempt's new status",
    "worker": "worker id, escaped",
    "heartbeat": "last heartbeat as the caller gave it",
    "body": "version of the attempt's body (payload abody:<rollout>:<attempt>:<version>)",
    **_QUEUE,
}


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event.

    Attributes:
        when: when it is written.
        changes: the projections that `apply` changes.
        fields: its own fields and their meaning; all but ids are optional.
    """

    when: str
    changes: str
    fields: dict[str, str]


TYPES: Final[dict[str, EventType]] = {
    "rollout_enqueued": EventType(
        "a rollout is put on the queue for the first time",
        "rollout, body, tasks, indexes",
        {**_ROLLOUT, "body": "version of the body (payload body:<rollout>:<version>)"},
    ),
    "rollout_started": EventType(
        "a rollout is made outside the queue; an attempt_started follows",
        "rollout, body, indexes",
        {**_ROLLOUT, "body": "version of the body (payload body:<rollout>:<version>)"},
    ),
    "rollout_updated": EventType(
        "update_rollout or cancel changed something",
        "rollout, body, tasks, finished, dead, indexes",
        {**_ROLLOUT, **_QUEUE, "rollout_body": "version of the new body (payload body:<rollout>:<version>)"},
    ),
    "rollout_dead": EventType(
        "a rollout was delivered too often without being begun",
        "rollout, tasks, finished, dead, indexes",
        {"rollout": "rollout id", **_QUEUE},
    ),
    "dead_requeued": EventType(
        "an operator put a rollout that was given up on the queue again",
        "rollout, tasks, dead, indexes",
        {"rollout": "rollout id", **_QUEUE},
    ),
    "dead_dropped": EventType(
        "an operator took a rollout that was given up off the dead stream; it stays failed",
        "rollout, dead",
        {"rollout": "rollout id", "undead": _QUEUE["undead"]},
    ),
    "redelivered": EventType(
        "an entry went back to the queue: released by its reader, never begun, or lost from the stream",
        "rollout, tasks",
        {"rollout": "rollout id", **_QUEUE},
    ),
    "attempt_started": EventType(
        "a runner begins a rollout",
        "attempt, rollout, worker, tasks, dead, indexes, totals",
        {**_ATTEMPT, "seq": "number of the attempt", "worker": "worker id, escaped", "lease": "microseconds", **_QUEUE},
    ),
    "attempt_running": EventType("an attempt's first span, or a lost one's return", "attempt, rollout, worker", _MOVE),
    "attempt_ended": EventType("an attempt succeeded or failed", "attempt, rollout, worker, finished, tasks", _MOVE),
    "attempt_lost": EventType(
        "an attempt timed out, fell silent, or lost its runner",
        "attempt, rollout, worker, finished, dead, tasks",
        _MOVE,
    ),
    "attempt_updated": EventType("worker, heartbeat or metadata of an attempt were set", "attempt, worker", _MOVE),
    "spans": EventType(
        "new spans of one attempt were stored (payloads: one per span id)",
        "spans, attempt's heartbeat; by fold: sums of attempt and rollout, totals",
        {
            **_ATTEMPT,
            "count": "number of spans",
            "ids": "span ids, joined by line feeds",
            "numbers": "their sequence numbers, joined by commas",
            "first": "earliest start, microseconds",
            "last": "latest end, microseconds",
            "sums": "calls,prompt,completion,incomplete,rewards,reward over the spans; absent when all are zero",
        },
    ),
    "worker_idle": EventType("a worker found the queue empty", "worker", {"worker": "worker id, escaped"}),
    "worker_retired": EventType(
        "a worker, or a consumer of its name, was idle for long with nothing open and is forgotten",
        "worker",
        {"worker": "worker id, escaped"},
    ),
    "resources_updated": EventType(
        "a version of a bundle of resources was stored (payload resources:<resources>:<version>)",
        "resources",
        {"resources": "resources id, escaped", "version": "from 1", "create": "time of the first version"},
    ),
    "grace": EventType(
        "the watchdog, its host or the server was away", "nothing", {"until": "no silence is judged before this time"}
    ),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the log.

    Attributes:
        id: entry id, ``<milliseconds>-<counter>``: the order of events.
        type: one of `TYPES`, or a type of a newer release.
        n: dense number in its shard.
        time_us: Unix microseconds.
        fields: the other fields, as text.
    """

    id: str
    type: str
    n: int
    time_us: int
    fields: dict[str, str]

    def flat(self) -> list[str]:
        """The entry's fields and values in the order in which they are written."""
        flat = ["type", self.type, "n", str(self.n), "time", str(self.time_us)]
        for name, value in self.fields.items():
            flat += (name, value)
        return flat

    def payload_names(self) -> list[str]:
        """Names of the payloads beside the event, without the shard's prefix; for ``spans`` the span ids."""
        fields = self.fields
        if self.type == "spans":
            return fields["ids"].split("\n")
        if self.type == "resources_updated":
            return [f"resources:{fields['resources']}:{fields['version']}"]
        names: list[str] = []
        if self.type in ("rollout_enqueued", "rollout_started"):
            names.append(f"body:{fields['rollout']}:{fields['body']}")
        elif "body" in fields:
            names.append(f"abody:{fields['rollout']}:{fields['attempt']}:{fields['body']}")
        if "rollout_body" in fields:
            names.append(f"body:{fields['rollout']}:{fields['rollout_body']}")
        return names


def decode(entry_id: bytes, flat: list[Reply]) -> Event:
    """An entry of the log as an event."""
    texts = [part.decode() for part in flat if isinstance(part, bytes)]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    kind, n, time_us = fields.pop("type"), int(fields.pop("n")), int(fields.pop("time"))
    return Event(entry_id.decode(), kind, n, time_us, fields)
