"""What one span adds to the sums of its attempt."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agl_streams import semconv
from agl_streams.models import Span
from agl_streams.sums import MAX_TOKENS, SpanSums, sums_of
from tests.support.spans import call_attributes, model_call, reward


def test_a_complete_call_adds_its_tokens() -> None:
    """The prompt counts once, the answers of all choices together."""
    attributes = call_attributes([1, 2, 3], ([4, 5], [-1.0, -2.0]), ([6], [-3.0]))
    assert sums_of(model_call(1, attributes).attributes) == SpanSums(
        model_calls=1, prompt_tokens=3, completion_tokens=3
    )


def test_an_incomplete_call_is_counted_as_such() -> None:
    """Without ids the provider's usage is counted."""
    attributes = {
        semconv.CALL_COMPLETE: False,
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 7,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: 5,
    }
    expected = SpanSums(model_calls=1, prompt_tokens=7, completion_tokens=5, incomplete=1)
    assert sums_of(model_call(1, attributes).attributes) == expected


@pytest.mark.parametrize("complete", ["true", 1, 0, [True]])
def test_only_true_is_complete(complete: Any) -> None:
    """A claim of another type is no claim."""
    assert sums_of(model_call(1, {semconv.CALL_COMPLETE: complete}).attributes).incomplete == 1


@pytest.mark.parametrize(("usage", "tokens"), [(-1, 0), ("9", 0), (1.5, 0), (10**30, MAX_TOKENS)])
def test_odd_usage_cannot_spoil_a_sum(usage: Any, tokens: int) -> None:
    """Sums stay whole, positive and exact, whatever an upstream claims."""
    attributes = {semconv.CALL_COMPLETE: False, semconv.GEN_AI_USAGE_INPUT_TOKENS: usage}
    assert sums_of(model_call(1, attributes).attributes).prompt_tokens == tokens


def test_a_reward_is_counted_with_its_value() -> None:
    """The primary value travels with the count."""
    assert sums_of(reward(1, 0.25).attributes) == SpanSums(rewards=1, reward=0.25)
    assert sums_of(reward(1, 0).attributes) == SpanSums(rewards=1, reward=0.0)


def test_the_first_dimension_is_the_reward() -> None:
    """Of several dimensions the one at index 0 counts."""
    span = Span.from_attributes(attributes=semconv.reward_attributes({"main": 2, "other": 1}))
    assert sums_of(span.attributes) == SpanSums(rewards=1, reward=2.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", [1.0], 10**400])
def test_a_reward_that_is_no_finite_number_is_none(value: Any) -> None:
    """Such a span is stored like any other and counts as no reward."""
    assert sums_of(Span.from_attributes(attributes={semconv.PRIMARY_REWARD_VALUE: value}).attributes) == SpanSums()


def test_any_other_span_adds_nothing() -> None:
    """A client's own record of a model call is not counted beside the proxy's."""
    attributes = {semconv.GEN_AI_OPERATION_NAME: "chat", semconv.GEN_AI_USAGE_INPUT_TOKENS: 5}
    assert sums_of(Span.from_attributes(attributes=attributes).attributes) == SpanSums()
