"""Which reward goes to which model call."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams import semconv
from agl_streams.adapters import TripletAdapter
from agl_streams.models import Span
from tests.support.spans import model_call, reward


def rewards(spans: list[Span], adapter: TripletAdapter) -> list[float | None]:
    """The rewards of the triplets, in order."""
    return [triplet.reward for triplet in adapter.adapt(spans).triplets]


LATEST = TripletAdapter()
FINAL = TripletAdapter(reward_match="final")


def test_a_reward_goes_to_the_call_before_it() -> None:
    """Each call gets the reward that follows it."""
    spans = [model_call(1), reward(2, 0.5), model_call(3), reward(4, 1.0)]
    assert rewards(spans, LATEST) == [0.5, 1.0]


def test_a_final_reward_alone_goes_to_the_last_call() -> None:
    """Earlier calls stay without a reward."""
    assert rewards([model_call(1), model_call(2), reward(3, 1.0)], LATEST) == [None, 1.0]


def test_later_rewards_go_to_earlier_calls_without_one() -> None:
    """A call has one reward at most: the next reward goes to the latest call that still lacks one."""
    assert rewards([model_call(1), model_call(2), reward(3, 0.1), reward(4, 0.2)], LATEST) == [0.2, 0.1]


def test_the_sequence_id_of_a_call_must_be_strictly_smaller() -> None:
    """A reward does not belong to a call of the same sequence id, whichever ended first."""
    batch = LATEST.adapt([model_call(1), model_call(2, start_time=1.0), reward(2, 1.0, start_time=2.0)])
    assert [triplet.reward for triplet in batch.triplets] == [1.0, None]


def test_a_reward_before_every_call_belongs_to_none() -> None:
    """It is counted, not given to a later call."""
    batch = LATEST.adapt([reward(1, 1.0), model_call(2)])
    assert [triplet.reward for triplet in batch.triplets] == [None]
    assert batch.unmatched_rewards == 1


def test_an_incomplete_call_takes_its_reward_along() -> None:
    """The reward of a call that is left out is not handed to an earlier call."""
    lost = model_call(2, {semconv.CALL_COMPLETE: False})
    batch = LATEST.adapt([model_call(1), lost, reward(3, 1.0)])
    assert [triplet.reward for triplet in batch.triplets] == [None]
    assert batch.unmatched_rewards == 0


def test_attempts_do_not_share_rewards() -> None:
    """A retry's reward says nothing about the attempt before it, although the sequence goes on."""
    spans = [model_call(1, attempt_id="at-1"), model_call(2, attempt_id="at-2"), reward(3, 1.0, attempt_id="at-2")]
    assert rewards(spans, LATEST) == [None, 1.0]
    assert rewards(spans, FINAL) == [None, 1.0]


def test_the_final_reward_goes_to_every_call() -> None:
    """The last reward by sequence id counts, whatever came before and wherever it stands in the input."""
    spans = [reward(9, 0.75), model_call(1), reward(2, 0.1), model_call(3)]
    assert rewards(spans, FINAL) == [0.75, 0.75]


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_zero_and_negative_rewards_count(value: float) -> None:
    """Only a missing reward is None."""
    spans = [model_call(1), reward(2, value)]
    assert rewards(spans, LATEST) == rewards(spans, FINAL) == [value]


@pytest.mark.parametrize("adapter", [LATEST, FINAL])
def test_without_rewards_there_are_none(adapter: TripletAdapter) -> None:
    """A reward that is no finite number is none either."""
    odd = Span.from_attributes(
        attributes={semconv.PRIMARY_REWARD_VALUE: math.nan},
        rollout_id="ro-000000000001",
        attempt_id="at-00000001",
        sequence_id=2,
    )
    batch = adapter.adapt([model_call(1), odd])
    assert [triplet.reward for triplet in batch.triplets] == [None]
    assert batch.unmatched_rewards == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9))))
def test_matching_agrees_with_its_definition(history: list[tuple[bool, int]]) -> None:
    """The one pass over the spans finds what the rule says, reward by reward."""
    spans = [
        model_call(number, span_id=str(at)) if is_call else reward(number, float(at), span_id=str(at))
        for at, (is_call, number) in enumerate(history)
    ]
    expected: dict[str, float] = {}
    for span in sorted((span for span in spans if not semconv.is_model_call(span)), key=lambda span: span.sequence_id):
        earlier = [call for call in spans if semconv.is_model_call(call) and call.sequence_id < span.sequence_id]
        unrewarded = [call for call in earlier if call.span_id not in expected]
        if unrewarded:
            latest = max(unrewarded, key=lambda call: (call.sequence_id, spans.index(call)))
            expected[latest.span_id] = float(span.span_id)
    batch = LATEST.adapt(spans)
    matched = {t.metadata["span_id"]: t.reward for t in batch.triplets if t.reward is not None}
    assert matched == expected
    assert batch.unmatched_rewards == sum(not is_call for is_call, _ in history) - len(expected)
