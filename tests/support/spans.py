"""Spans and rollouts as tests need them: model calls as the proxy records them, rewards, an attempt to work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agl_streams import semconv
from agl_streams.models import Attempt, AttemptedRollout, Span

ROLLOUT = "ro-000000000001"
ATTEMPT = "at-00000001"


def attempted_rollout(task: Any = None, *, rollout_id: str = ROLLOUT, attempt_id: str = ATTEMPT) -> AttemptedRollout:
    """A rollout with its first attempt."""
    attempt = Attempt(rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=1, start_time=1.0)
    return AttemptedRollout(rollout_id=rollout_id, input=task, start_time=1.0, status="preparing", attempt=attempt)


def call_attributes(
    prompt: Sequence[int], *choices: tuple[Sequence[int], Sequence[float]], **more: Any
) -> dict[str, Any]:
    """The attributes of a complete model call; each choice is token ids and log-probabilities."""
    attributes: dict[str, Any] = {semconv.CALL_COMPLETE: True, semconv.CALL_PROMPT_TOKEN_IDS: list(prompt)}
    for index, (token_ids, logprobs) in enumerate(choices):
        attributes[semconv.choice_key(index, semconv.CHOICE_TOKEN_IDS)] = list(token_ids)
        attributes[semconv.choice_key(index, semconv.CHOICE_LOGPROBS)] = list(logprobs)
    return attributes | more


def model_call(sequence_id: int, attributes: dict[str, Any] | None = None, **fields: Any) -> Span:
    """A model call with one prompt token and one sampled token, both the sequence id, unless attributes say else."""
    if attributes is None:
        attributes = call_attributes([sequence_id], ([sequence_id], [-0.5]))
    return _span("chat tiny", sequence_id, attributes, **fields)


def reward(sequence_id: int, value: float, **fields: Any) -> Span:
    """A reward as `emit_reward` makes it."""
    return _span(semconv.AGL_ANNOTATION, sequence_id, semconv.reward_attributes({"primary": value}), **fields)


def _span(name: str, sequence_id: int, attributes: dict[str, Any], **fields: Any) -> Span:
    identity: dict[str, Any] = {"rollout_id": ROLLOUT, "attempt_id": ATTEMPT} | fields
    return Span.from_attributes(name=name, sequence_id=sequence_id, attributes=attributes, **identity)
