"""What one span adds to the sums of its attempt and rollout.

The sums travel with the span, so that the server adds numbers and never reads a span's content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from agl_streams import semconv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_TOKENS: Final = 10**9
"""Tokens that one call may count: far above any context, and a million such calls still add exactly in a double."""


@dataclass(frozen=True, slots=True)
class SpanSums:
    """The share of one span.

    Attributes:
        model_calls: 1 for a call that the proxy recorded.
        prompt_tokens: tokens sent, once per call.
        completion_tokens: tokens sampled, over all choices.
        incomplete: 1 for a call whose capture is not complete.
        rewards: 1 for a span that carries a reward.
        reward: that reward's primary value; not added up, the last one counts.
    """

    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    incomplete: int = 0
    rewards: int = 0
    reward: float | None = None


_NOTHING: Final = SpanSums()
_CHOICES: Final = f"{semconv.CALL_CHOICE}."
_TOKEN_IDS: Final = f".{semconv.CHOICE_TOKEN_IDS}"


def sums_of(attributes: Mapping[str, Any]) -> SpanSums:
    """What a span with these attributes adds.

    Token counts are those of the captured ids, or the provider's usage where there are none.
    """
    reward = semconv.reward_in(attributes)
    if not semconv.is_call_in(attributes):
        return _NOTHING if reward is None else SpanSums(rewards=1, reward=reward)
    return SpanSums(
        model_calls=1,
        prompt_tokens=_prompt_tokens(attributes),
        completion_tokens=_completion_tokens(attributes),
        incomplete=int(attributes[semconv.CALL_COMPLETE] is not True),
        rewards=int(reward is not None),
        reward=reward,
    )


def _prompt_tokens(attributes: Mapping[str, Any]) -> int:
    ids = attributes.get(semconv.CALL_PROMPT_TOKEN_IDS)
    return (
        len(cast("list[Any]", ids)) if isinstance(ids, list) else _usage(attributes, semconv.GEN_AI_USAGE_INPUT_TOKENS)
    )


def _completion_tokens(attributes: Mapping[str, Any]) -> int:
    counts = list(_choice_tokens(attributes))
    return sum(counts) if counts else _usage(attributes, semconv.GEN_AI_USAGE_OUTPUT_TOKENS)


def _choice_tokens(attributes: Mapping[str, Any]) -> Iterator[int]:
    for key, value in attributes.items():
        if key.startswith(_CHOICES) and key.endswith(_TOKEN_IDS) and isinstance(value, list):
            yield len(cast("list[Any]", value))


def _usage(attributes: Mapping[str, Any], key: str) -> int:
    value = attributes.get(key)
    if not isinstance(value, int):
        return 0
    return min(max(value, 0), MAX_TOKENS)
