"""What functions are given and what they answer, as `ShardFunctions` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class NewRollout(NamedTuple):
    """A rollout as `enqueue` and `start_rollout` take it, in their order; times in microseconds, '' for none."""

    rollout_id: str
    body: bytes
    mode: str
    resources: str
    timeout_us: str
    unresponsive_us: str
    max_attempts: int
    retry: str


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What one fold did.

    Attributes:
        events: events read.
        last_id: the last one's id; None when there was none.
        more: whether there may be more to read; False: the log is folded to its end.
    """

    events: int
    last_id: str | None
    more: bool


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What one expire did.

    Attributes:
        ended: attempts ended.
        redelivered: queue entries put back or given up.
        next_deadline_us: when the next deadline is due, Unix microseconds; None when there is none.
        more: whether more is due now than one call may handle.
    """

    ended: int
    redelivered: int
    next_deadline_us: int | None
    more: bool
