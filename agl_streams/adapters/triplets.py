"""Spans to triplets: prompt ids, response ids with their log-probabilities, and a reward."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from agl_streams import semconv
from agl_streams.adapters.calls import Call, Choice, read_call
from agl_streams.adapters.rewards import RewardMatch, match_rewards
from agl_streams.models import Triplet, TripletPrompt, TripletResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agl_streams.span import Span

DUPLICATE: Final = "duplicate"
"""The reason for a call that was given twice; the first one counts."""


@dataclass(frozen=True, slots=True)
class TripletBatch:
    """What came out of some spans.

    Attributes:
        triplets: attempt by attempt as they first appear, within one by sequence id, then by choice.
        left_out: recorded calls that gave no triplet, by reason.
        unmatched_rewards: rewards that belong to no call.
    """

    triplets: list[Triplet] = field(default_factory=list[Triplet])
    left_out: Counter[str] = field(default_factory=Counter[str])
    unmatched_rewards: int = 0


@dataclass(frozen=True, slots=True)
class TripletAdapter:
    """Makes one triplet per choice of every complete model call; what is incomplete or inconsistent is counted.

    Attributes:
        reward_match: which reward a call gets, see `RewardMatch`.
    """

    reward_match: RewardMatch = "latest_call"

    def adapt(self, spans: Iterable[Span]) -> TripletBatch:
        """The triplets of spans in any order, of one attempt or several. Attempts never share rewards."""
        triplets: list[Triplet] = []
        left_out: Counter[str] = Counter()
        unmatched = 0
        for attempt in _by_attempt(spans, left_out):
            rewards, without_call = match_rewards(attempt, self.reward_match)
            unmatched += without_call
            for span in filter(semconv.is_model_call, attempt):
                call = read_call(span)
                if isinstance(call, str):
                    left_out[call] += 1
                else:
                    triplets += _triplets(call, rewards.get(span.span_id))
        return TripletBatch(triplets, left_out, unmatched)


def _by_attempt(spans: Iterable[Span], left_out: Counter[str]) -> Iterator[list[Span]]:
    """The spans of each attempt in order, each span once."""
    attempts: dict[tuple[str, str], dict[str, Span]] = {}
    for span in spans:
        attempt = attempts.setdefault((span.rollout_id, span.attempt_id), {})
        if span.span_id not in attempt:
            attempt[span.span_id] = span
        elif semconv.is_model_call(span):
            left_out[DUPLICATE] += 1
    for attempt in attempts.values():
        yield sorted(attempt.values(), key=_order)


def _order(span: Span) -> tuple[int, float, float]:
    return span.sequence_id, span.start_time or 0.0, span.end_time or 0.0


def _triplets(call: Call, reward: float | None) -> Iterator[Triplet]:
    prompt = TripletPrompt(token_ids=call.prompt_token_ids, raw_content=call.messages)
    for choice in call.choices:
        response = TripletResponse(token_ids=choice.token_ids, logprobs=choice.logprobs, raw_content=choice.message)
        yield Triplet(prompt=prompt, response=response, reward=reward, metadata=_metadata(call, choice))


def _metadata(call: Call, choice: Choice) -> dict[str, Any]:
    """Where a triplet comes from."""
    span = call.span
    return {
        "rollout_id": span.rollout_id,
        "attempt_id": span.attempt_id,
        "sequence_id": span.sequence_id,
        "span_id": span.span_id,
        "choice": choice.index,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "response_id": span.attributes.get(semconv.GEN_AI_RESPONSE_ID),
        "model": span.attributes.get(semconv.GEN_AI_RESPONSE_MODEL),
        "system_fingerprint": span.attributes.get(semconv.CALL_SYSTEM_FINGERPRINT),
    }
