"""What an agent tells about its attempt while it runs: from its task, its thread and what they call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agl_streams import semconv
from agl_streams.agent.context import current_context
from agl_streams.agent.results import exception_attributes, failed
from agl_streams.errors import InvalidRequest
from agl_streams.models import Span


def emit_reward(
    reward: float | Mapping[str, float],
    *,
    primary_key: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Span:
    """Record a reward for what the agent has done so far.

    Args:
        reward: a number, or several by name.
        primary_key: the name of the one that counts, when there are several.
        attributes: more attributes of the span; they win over the built-in ones.

    Returns:
        The span that was emitted.

    Raises:
        InvalidRequest: outside an attempt; a reward is no finite number; the primary one is not named or not there.
    """
    rewards = semconv.reward_attributes(_primary_first(reward, primary_key))
    return _emit(semconv.AGL_ANNOTATION, rewards, attributes)


def emit_message(message: str, *, attributes: Mapping[str, Any] | None = None) -> Span:
    """Record a message of the agent, as a log line would be.

    Raises:
        InvalidRequest: outside an attempt, or the message is no text.
    """
    return _emit(semconv.AGL_MESSAGE, {semconv.MESSAGE_BODY: message}, attributes)


def emit_exception(exception: BaseException, *, attributes: Mapping[str, Any] | None = None) -> Span:
    """Record an exception that the agent has dealt with. One that it raises is recorded by the runner.

    Raises:
        InvalidRequest: outside an attempt.
    """
    context = current_context()
    all_attributes = {**exception_attributes(exception), **(attributes or {})}
    span = context.span(semconv.AGL_EXCEPTION, all_attributes, failed(exception))
    context.emit(span)
    return span


def _emit(name: str, built_in: Mapping[str, Any], attributes: Mapping[str, Any] | None) -> Span:
    context = current_context()
    span = context.span(name, {**built_in, **(attributes or {})})
    context.emit(span)
    return span


def _primary_first(reward: float | Mapping[str, float], primary_key: str | None) -> dict[str, float]:
    if not isinstance(reward, Mapping):
        return {primary_key or semconv.PRIMARY_REWARD: reward}
    if primary_key is None or primary_key not in reward:
        raise InvalidRequest(f"primary_key must be one of the rewards {sorted(reward)}, got {primary_key!r}")
    return {primary_key: reward[primary_key], **reward}
