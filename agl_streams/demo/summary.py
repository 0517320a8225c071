"""The demo's closing numbers, all from the store, and whether its promises hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from agl_streams.demo.kill import Killing, recovered_within_s
from agl_streams.demo.training import Progress
from agl_streams.store import StreamStore

FIRST_AT_MOST: Final = 0.5
LAST_AT_LEAST: Final = 0.9
GRACE_S: Final = 2.0  # beyond the lease: what noticing, queueing and beginning again may take


@dataclass(frozen=True, slots=True)
class Summary:
    """What the run came to.

    Attributes:
        first_reward, last_reward: mean reward of the first and the last batch.
        attempts, spans, model_calls, tokens: of all attempts, lost ones included.
        complete_captures, incomplete_captures: model calls of the attempts that count, by capture.
        retries: attempts beyond the first of each rollout.
        lost: rollouts enqueued but not finished.
        doubled: rollouts that finished more than once.
        seconds: the run without set-up.
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
    retries: int
    lost: int
    doubled: int
    seconds: float
    killed_runner: str | None = None
    killed_rollouts: int | None = None
    recovered_seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields for scripts; those of a kill only when there was one."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def broken_promises(self, lease_seconds: float) -> list[str]:
        """One line for each promise that does not hold."""
        first, last = self.first_reward, self.last_reward
        checks = {
            f"the first batch's reward {first:.2f} is above {FIRST_AT_MOST}": first > FIRST_AT_MOST,
            f"the last batch's reward {last:.2f} is below {LAST_AT_LEAST}": last < LAST_AT_LEAST,
            f"{self.lost} rollouts are lost": self.lost > 0,
            f"{self.doubled} rollouts finished twice": self.doubled > 0,
            f"{self.incomplete_captures} captures are incomplete": self.incomplete_captures > 0,
        }
        if self.recovered_seconds is not None:
            late = self.recovered_seconds > lease_seconds + GRACE_S
            checks[f"recovery took {self.recovered_seconds:.1f} s, more than the lease and {GRACE_S:.0f} s"] = late
        return [line for line, broken in checks.items() if broken]


async def summarise(store: StreamStore, progress: Progress, seconds: float, killing: Killing | None) -> Summary:
    """Count everything in the store, after its sums are settled."""
    await store.settle()
    finished = await store.finished_counts()
    attempts = spans = calls = tokens = counted = incomplete = 0
    for rollout_id in progress.rollout_ids:
        tries = await store.query_attempts(rollout_id)
        attempts += len(tries)
        sums = await store.rollout_sums(rollout_id)
        spans += sums.spans
        calls += sums.model_calls
        tokens += sums.prompt_tokens + sums.completion_tokens
        effective = await store.attempt_sums(rollout_id, tries[-1].attempt_id)
        counted += effective.model_calls
        incomplete += effective.incomplete
    rollouts = len(progress.rollout_ids)
    return Summary(
        first_reward=round(progress.rewards[0], 4),
        last_reward=round(progress.rewards[-1], 4),
        rollouts=rollouts,
        attempts=attempts,
        spans=spans,
        model_calls=calls,
        tokens=tokens,
        complete_captures=counted - incomplete,
        incomplete_captures=incomplete,
        retries=attempts - rollouts,
        lost=rollouts - sum(rollout_id in finished for rollout_id in progress.rollout_ids),
        doubled=sum(finished.get(rollout_id, 0) > 1 for rollout_id in progress.rollout_ids),
        seconds=round(seconds, 2),
        killed_runner=killing and killing.worker_id,
        killed_rollouts=killing and len(killing.rollout_ids),
        recovered_seconds=None if killing is None else round(await recovered_within_s(store, killing), 2),
    )
