"""Which reward belongs to which model call of an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from agl_streams import semconv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agl_streams.span import Span

RewardMatch: TypeAlias = Literal["latest_call", "final"]
"""``latest_call``: each reward goes to the latest call without one that has a strictly smaller sequence id, as in
Agent-lightning's ``LlmProxyTraceToTriplet``. ``final``: every call gets the last reward of the attempt."""


def match_rewards(spans: Sequence[Span], match: RewardMatch) -> tuple[dict[str, float], int]:
    """Rewards by the span id of their call.

    A call whose capture is incomplete takes its reward all the same: to hand it on to an earlier call would credit
    tokens for what other tokens did.

    Args:
        spans: of one attempt, in order.

    Returns:
        The rewards, and how many found no call.
    """
    return _final(spans) if match == "final" else _latest_call(spans)


def _final(spans: Sequence[Span]) -> tuple[dict[str, float], int]:
    calls = [span.span_id for span in spans if semconv.is_model_call(span)]
    rewards = [reward for span in spans if (reward := semconv.reward_value(span)) is not None]
    if not rewards:
        return {}, 0
    return dict.fromkeys(calls, rewards[-1]), 0 if calls else 1


def _latest_call(spans: Sequence[Span]) -> tuple[dict[str, float], int]:
    matched: dict[str, float] = {}
    unmatched = 0
    open_calls: list[Span] = []
    # Calls of the sequence id at hand: a reward of the same id does not see them yet.
    current: list[Span] = []
    for span in spans:
        if current and span.sequence_id > current[0].sequence_id:
            open_calls += current
            current = []
        reward = semconv.reward_value(span)
        if reward is not None and open_calls:
            matched[open_calls.pop().span_id] = reward
        elif reward is not None:
            unmatched += 1
        if semconv.is_model_call(span):
            current.append(span)
    return matched, unmatched
