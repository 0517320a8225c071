"""The demo's closing numbers, all from the store, and whether its promises hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from agl_streams.demo.kill import Killing, Recovery, recoveries
from agl_streams.demo.training import Progress
from agl_streams.store import StreamStore

FIRST_AT_MOST: Final = 0.5
LAST_AT_LEAST: Final = 0.9
GRACE_S: Final = 2.0  # beyond the lease: what noticing, queueing and beginning again may take
AT_ONCE: Final = 64  # rollouts asked for together

JSON_FIELDS: Final = (
    "first_reward",
    "last_reward",
    "rollouts",
    "attempts",
    "spans",
    "model_calls",
    "tokens",
    "complete_captures",
    "incomplete_captures",
    "retries",
    "lost",
    "doubled",
    "seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the run came to.

    Attributes:
        first_reward, last_reward: mean reward of the first and the last batch.
        attempts, spans, model_calls, tokens: of all attempts, lost ones included.
        complete_captures, incomplete_captures: model calls of the attempts that count, by capture.
        triplets: model calls that the learner learned from.
        retries: attempts beyond the first of each rollout.
        lost: rollouts enqueued but not finished.
        doubled: rollouts that finished more than once.
        seconds: the run without set-up.
        killing: the runner that was killed, if one was.
        recoveries: what became of each rollout that it held.
    """

    first_reward: float
    last_reward: float
    rollouts: int
    attempts: int
    spans: int
    model_calls: int
    tokens: int
    complete_captures: int
    incomplete_captures: int
    triplets: int
    retries: int
    lost: int
    doubled: int
    seconds: float
    killing: Killing | None = None
    recoveries: tuple[Recovery, ...] = ()

    @property
    def recovered_s(self) -> float:
        """Seconds from the kill until the last of the rollouts had a new attempt."""
        return max((recovery.after_s for recovery in self.recoveries), default=0.0)

    def as_json(self) -> dict[str, Any]:
        """``JSON_FIELDS``; after a kill also ``killed_runner``, ``killed_rollouts`` and ``recovered_seconds``."""
        values: dict[str, Any] = {name: getattr(self, name) for name in JSON_FIELDS}
        if self.killing:
            values["killed_runner"] = self.killing.worker_id
            values["killed_rollouts"] = len(self.killing.rollout_ids)
            values["recovered_seconds"] = round(self.recovered_s, 2)
        return values

    def broken_promises(self, lease_seconds: float) -> list[str]:
        """One line for each promise that does not hold."""
        first, last, late_s = self.first_reward, self.last_reward, lease_seconds + GRACE_S
        checks = {
            f"the reward of the first batch, {first:.2f}, is above {FIRST_AT_MOST}": first > FIRST_AT_MOST,
            f"the reward of the last batch, {last:.2f}, is below {LAST_AT_LEAST}": last < LAST_AT_LEAST,
            f"{self.lost} rollouts are lost": self.lost > 0,
            f"{self.doubled} rollouts finished twice": self.doubled > 0,
            f"{self.incomplete_captures} captures are incomplete": self.incomplete_captures > 0,
            f"the learner saw {self.triplets} of {self.complete_captures} complete captures": (
                self.triplets != self.complete_captures
            ),
            f"recovery took {self.recovered_s:.1f} s, more than the lease and {GRACE_S:.0f} s": (
                self.recovered_s > late_s
            ),
        }
        for recovery in self.recoveries:
            lost = recovery.lost
            checks[
                f"{lost.rollout_id}: the attempt of the killed runner was not lost and repeated by another"
            ] = not recovery.complete
        return [line for line, broken in checks.items() if broken]


@dataclass(slots=True)
class _Counts:
    attempts: int = 0
    spans: int = 0
    model_calls: int = 0
    tokens: int = 0
    counted: int = 0
    incomplete: int = 0


async def summarise(store: StreamStore, progress: Progress, seconds: float, killing: Killing | None) -> Summary:
    """Count everything in the store, after its sums are settled."""
    await store.settle()
    finished = await store.finished_counts()
    rollout_ids = progress.rollout_ids
    counts = _Counts()
    for start in range(0, len(rollout_ids), AT_ONCE):
        await asyncio.gather(*(_count(store, one, counts) for one in rollout_ids[start : start + AT_ONCE]))
    return Summary(
        first_reward=round(progress.rewards[0], 4),
        last_reward=round(progress.rewards[-1], 4),
        rollouts=len(rollout_ids),
        attempts=counts.attempts,
        spans=counts.spans,
        model_calls=counts.model_calls,
        tokens=counts.tokens,
        complete_captures=counts.counted - counts.incomplete,
        incomplete_captures=counts.incomplete,
        triplets=progress.triplets,
        retries=counts.attempts - len(rollout_ids),
        lost=len(rollout_ids) - sum(one in finished for one in rollout_ids),
        doubled=sum(finished.get(one, 0) > 1 for one in rollout_ids),
        seconds=round(seconds, 2),
        killing=killing,
        recoveries=tuple(await recoveries(store, killing)) if killing else (),
    )


async def _count(store: StreamStore, rollout_id: str, counts: _Counts) -> None:
    """Add one rollout to the counts."""
    attempts = await store.query_attempts(rollout_id)
    of_all = await store.rollout_sums(rollout_id)
    of_newest = await store.attempt_sums(rollout_id, attempts[-1].attempt_id)
    counts.attempts += len(attempts)
    counts.spans += of_all.spans
    counts.model_calls += of_all.model_calls
    counts.tokens += of_all.prompt_tokens + of_all.completion_tokens
    counts.counted += of_newest.model_calls
    counts.incomplete += of_newest.incomplete
