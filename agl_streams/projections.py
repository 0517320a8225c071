"""The fields of the projections, in one list for Lua and Python, and their decoding into models.

Lua replies with *views*: arrays of the fields below in this order, with the opaque bodies beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from agl_streams import bodies
from agl_streams.keys import unescape
from agl_streams.models import Attempt, AttemptedRollout, Rollout, RolloutConfig, Worker
from agl_streams.semconv import REASON
from agl_streams.wire import Reply

SUMS: Final = ("calls", "prompt", "completion", "incomplete", "rewards", "reward")
"""What the aggregator adds up besides the number of spans; ``reward`` is the last one in log order."""

ROLLOUT_STATE: Final = (
    "status", "n", "mode", "resources", "start", "end", "body", "timeout", "unresponsive", "max", "retry",
    "attempts", "latest", "entry", "deliveries", "lost", "reason", "sequence",
)  # fmt: skip
"""What commands decide by."""
ROLLOUT: Final = (*ROLLOUT_STATE, "spans", *SUMS, "first", "last")
ATTEMPT: Final = (
    "status", "seq", "start", "end", "worker", "heartbeat", "lease", "reason", "body", "spans", *SUMS, "first", "last",
    "sequence",
)  # fmt: skip
FOLDED_ALWAYS: Final = ("status", "spans", "first", "last", "sequence")
FOLDED: Final = (*FOLDED_ALWAYS, *SUMS)
"""What fold reads to add to it; the status only tells whether the thing is still there."""
WORKER: Final = ("status", "busy", "idle", "dequeue", "rollout", "attempt", "n")
WORKER_LIVE: Final = ("heartbeat", "dequeue", "stats")

US_PER_S: Final = 1_000_000

View = list[Any]
"""A reply of Lua: nested lists of bytes, with None for what is absent."""


@dataclass(frozen=True, slots=True)
class RolloutSums:
    """What the aggregator has folded so far of a rollout or an attempt.

    Attributes:
        spans: spans stored.
        model_calls, prompt_tokens, completion_tokens, incomplete: model calls, their tokens, and how many of them were
            captured incompletely.
        rewards, reward: rewards seen, and the last of them in log order.
        first_span_time, last_span_time: earliest start and latest end, Unix seconds.
    """

    spans: int = 0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    incomplete: int = 0
    rewards: int = 0
    reward: float | None = None
    first_span_time: float | None = None
    last_span_time: float | None = None


def fields(names: tuple[str, ...], values: Reply) -> dict[str, str]:
    """The fields of a projection that are present."""
    pairs = zip(names, cast("list[bytes | None]", values), strict=True)
    return {name: value.decode() for name, value in pairs if value is not None}


def seconds(text: str | None) -> float | None:
    """Microseconds as text to Unix seconds."""
    return None if text is None else int(text) / US_PER_S


def decode_rollout(view: View) -> Rollout:
    """A rollout, with its newest attempt when it has one."""
    rollout_id, values, body, attempt = view
    row = fields(ROLLOUT, values)
    content = bodies.decode_rollout(body)
    metadata = content.metadata
    if "reason" in row:
        metadata = {**(metadata or {}), REASON: row["reason"]}
    data: dict[str, Any] = {
        "rollout_id": rollout_id.decode(),
        "input": content.input,
        "start_time": int(row["start"]) / US_PER_S,
        "end_time": seconds(row.get("end")),
        "mode": row.get("mode"),
        "resources_id": row.get("resources"),
        "status": row["status"],
        "config": content.config or RolloutConfig(),
        "metadata": metadata,
    }
    if attempt is None:
        return Rollout(**data)
    return AttemptedRollout(**data, attempt=decode_attempt(data["rollout_id"], attempt))


def decode_attempt(rollout_id: str, view: View) -> Attempt:
    """An attempt."""
    attempt_id, values, body = view
    row = fields(ATTEMPT, values)
    metadata: dict[str, Any] | None = bodies.decode_json(body) if body is not None else None
    if "reason" in row:
        metadata = {**(metadata or {}), REASON: row["reason"]}
    return Attempt(
        rollout_id=rollout_id,
        attempt_id=attempt_id.decode(),
        sequence_id=int(row["seq"]),
        start_time=int(row["start"]) / US_PER_S,
        end_time=seconds(row.get("end")),
        status=cast("Any", row["status"]),
        worker_id=unescape(row["worker"]) if "worker" in row else None,
        last_heartbeat_time=seconds(row.get("heartbeat")),
        metadata=metadata,
    )


def decode_sums(names: tuple[str, ...], values: Reply) -> RolloutSums:
    """The folded sums of a rollout (names ``ROLLOUT``) or an attempt (``ATTEMPT``)."""
    row = fields(names, values)
    return RolloutSums(
        spans=int(row.get("spans", 0)),
        model_calls=int(row.get("calls", 0)),
        prompt_tokens=int(row.get("prompt", 0)),
        completion_tokens=int(row.get("completion", 0)),
        incomplete=int(row.get("incomplete", 0)),
        rewards=int(row.get("rewards", 0)),
        reward=float(row["reward"]) if "reward" in row else None,
        first_span_time=seconds(row.get("first")),
        last_span_time=seconds(row.get("last")),
    )


def decode_worker(view: View) -> Worker:
    """A worker, from what transitions, heartbeats and polls say of it; of two times of a kind the later one."""
    worker_id, values, live_values = view
    row, live = fields(WORKER, values), fields(WORKER_LIVE, [*live_values[:2], None])
    stats = live_values[2]
    return Worker(
        worker_id=unescape(worker_id.decode()),
        status=cast("Any", row.get("status", "unknown")),
        heartbeat_stats=bodies.decode_json(stats) if stats is not None else None,
        last_heartbeat_time=seconds(live.get("heartbeat")),
        last_dequeue_time=seconds(max(row.get("dequeue", ""), live.get("dequeue", ""), key=_number) or None),
        last_busy_time=seconds(row.get("busy")),
        last_idle_time=seconds(row.get("idle")),
        current_rollout_id=row.get("rollout"),
        current_attempt_id=row.get("attempt"),
    )


def _number(text: str) -> int:
    return int(text or 0)
