"""Spans to triplets: what becomes one, what is left out and why, and that nothing is made up."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams import semconv
from agl_streams.adapters import TripletAdapter
from agl_streams.models import Span, TripletPrompt, TripletResponse
from tests.support.spans import ATTEMPT, ROLLOUT, call_attributes, model_call, reward

TOKENS_0 = semconv.choice_key(0, semconv.CHOICE_TOKEN_IDS)
LOGPROBS_0 = semconv.choice_key(0, semconv.CHOICE_LOGPROBS)
GOOD = call_attributes([1, 2], ([3, 4], [-0.5, -1.5]))


def left_out(attributes: dict[str, Any]) -> Counter[str]:
    """Why a call with these attributes gives no triplet."""
    batch = TripletAdapter().adapt([model_call(1, attributes)])
    assert batch.triplets == []
    return batch.left_out


def test_a_complete_call_becomes_a_triplet() -> None:
    """Ids and log-probabilities are taken over as they are, and the triplet says where it is from."""
    attributes = GOOD | {
        semconv.choice_key(0, semconv.CHOICE_FINISH_REASON): "stop",
        semconv.choice_key(0, semconv.CHOICE_STOP_REASON): "END",
        semconv.GEN_AI_RESPONSE_ID: "chatcmpl-1",
        semconv.GEN_AI_RESPONSE_MODEL: "tiny",
        semconv.CALL_SYSTEM_FINGERPRINT: "v7",
        semconv.GEN_AI_INPUT_MESSAGES: '[{"role":"user","content":"hi"}]',
        semconv.GEN_AI_OUTPUT_MESSAGES: '[{"role":"assistant","content":"ho"}]',
    }
    (triplet,) = TripletAdapter().adapt([model_call(5, attributes, span_id="s")]).triplets
    assert triplet.prompt == TripletPrompt(token_ids=[1, 2], raw_content=[{"role": "user", "content": "hi"}])
    assert triplet.response == TripletResponse(
        token_ids=[3, 4], logprobs=[-0.5, -1.5], raw_content={"role": "assistant", "content": "ho"}
    )
    assert triplet.reward is None
    assert triplet.metadata == {
        "rollout_id": ROLLOUT,
        "attempt_id": ATTEMPT,
        "sequence_id": 5,
        "span_id": "s",
        "choice": 0,
        "finish_reason": "stop",
        "stop_reason": "END",
        "response_id": "chatcmpl-1",
        "model": "tiny",
        "system_fingerprint": "v7",
    }


def test_each_choice_becomes_a_triplet() -> None:
    """Choices share the prompt and the reward, and come in the order of their index, tenth after ninth."""
    choices = [([10 + index], [-0.25]) for index in range(11)]
    batch = TripletAdapter().adapt([model_call(1, call_attributes([1], *choices)), reward(2, 0.5)])
    assert [triplet.metadata["choice"] for triplet in batch.triplets] == list(range(11))
    assert [triplet.response.token_ids for triplet in batch.triplets] == [[10 + index] for index in range(11)]
    assert {triplet.reward for triplet in batch.triplets} == {0.5}


def test_triplets_are_ordered_by_sequence_id() -> None:
    """The order of the input, and the clocks of the machines, do not matter."""
    spans = [model_call(number, start_time=100.0 - number) for number in range(1, 21)]
    random.Random(7).shuffle(spans)
    batch = TripletAdapter().adapt(spans)
    assert [triplet.metadata["sequence_id"] for triplet in batch.triplets] == list(range(1, 21))


def test_equal_sequence_ids_are_ordered_by_time() -> None:
    """Start, then end, decide between spans of one sequence id."""
    spans = [
        model_call(1, span_id=f"{start}{end}", start_time=start, end_time=end) for start in (2, 1) for end in (9, 8)
    ]
    ids = [triplet.metadata["span_id"] for triplet in TripletAdapter().adapt(spans).triplets]
    assert ids == ["18", "19", "28", "29"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({semconv.CALL_COMPLETE: False}, "incomplete"),
        ({semconv.CALL_COMPLETE: False, semconv.CALL_INCOMPLETE_REASON: "client_gone"}, "client_gone"),
        ({semconv.CALL_COMPLETE: "true"}, "incomplete"),
        ({semconv.CALL_COMPLETE: 1}, "incomplete"),
        ({semconv.CALL_PROMPT_TOKEN_IDS: []}, "no_prompt_token_ids"),
        ({semconv.CALL_PROMPT_TOKEN_IDS: "[1]"}, "no_prompt_token_ids"),
        ({semconv.CALL_PROMPT_TOKEN_IDS: [1.5]}, "not_token_ids"),
        ({semconv.CALL_PROMPT_TOKEN_IDS: [-1]}, "not_token_ids"),
        ({TOKENS_0: [True, True]}, "not_token_ids"),
        ({TOKENS_0: ["3", "4"]}, "not_token_ids"),
        ({TOKENS_0: []}, "no_response_token_ids"),
        ({LOGPROBS_0: []}, "no_logprobs"),
        ({LOGPROBS_0: ["-0.5", "-1.5"]}, "not_logprobs"),
        ({LOGPROBS_0: [True, True]}, "not_logprobs"),
        ({LOGPROBS_0: [-0.5, float("nan")]}, "not_logprobs"),
        ({LOGPROBS_0: [-0.5]}, "lengths_disagree"),
        ({LOGPROBS_0: [-0.5, -1.5, -2.5]}, "lengths_disagree"),
        ({TOKENS_0: [3]}, "lengths_disagree"),
    ],
)
def test_a_call_with_a_fault_is_left_out_by_reason(change: dict[str, Any], reason: str) -> None:
    """Whatever is missing, of the wrong kind or inconsistent keeps the call out, and is counted."""
    assert left_out(GOOD | change) == {reason: 1}


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (semconv.CALL_PROMPT_TOKEN_IDS, "no_prompt_token_ids"),
        (TOKENS_0, "no_response_token_ids"),
        (LOGPROBS_0, "no_logprobs"),
    ],
)
def test_a_call_without_one_of_its_parts_is_left_out(missing: str, reason: str) -> None:
    """Each part is needed."""
    assert left_out({key: value for key, value in GOOD.items() if key != missing}) == {reason: 1}


def test_a_call_without_choices_is_left_out() -> None:
    """A complete call that has no answer is nothing to learn from."""
    assert left_out(call_attributes([1])) == {"no_response_token_ids": 1}


def test_one_bad_choice_keeps_the_whole_call_out() -> None:
    """A call is trusted as a whole or not at all."""
    assert left_out(call_attributes([1], ([2], [-0.5]), ([3, 4], [-0.5]))) == {"lengths_disagree": 1}


def test_whole_log_probabilities_are_floats() -> None:
    """A list of zeros, which travels as integers, is read as floats."""
    batch = TripletAdapter().adapt([model_call(1, call_attributes([1], ([2, 3], [0, -9999])))])
    assert repr(batch.triplets[0].response.logprobs) == "[0.0, -9999.0]"


def test_text_that_is_no_json_is_kept_as_text() -> None:
    """Messages are for people: a broken one costs no triplet."""
    broken = {semconv.GEN_AI_INPUT_MESSAGES: "{", semconv.GEN_AI_OUTPUT_MESSAGES: '{"not": "a list"}'}
    (triplet,) = TripletAdapter().adapt([model_call(1, GOOD | broken)]).triplets
    assert (triplet.prompt.raw_content, triplet.response.raw_content) == ("{", None)


def test_a_span_given_twice_counts_once() -> None:
    """The same span id in the same attempt is the same call; in another attempt it is not."""
    span = model_call(1)
    batch = TripletAdapter().adapt([span, span, span.model_copy(update={"attempt_id": "at-2"})])
    assert len(batch.triplets) == 2
    assert batch.left_out == {"duplicate": 1}


def test_other_spans_give_nothing() -> None:
    """A span that the proxy did not record is neither a triplet nor left out."""
    spans = [Span.from_attributes(attributes={semconv.GEN_AI_OPERATION_NAME: "chat"}), reward(1, 1.0)]
    batch = TripletAdapter().adapt(spans)
    assert (batch.triplets, batch.left_out, batch.unmatched_rewards) == ([], {}, 1)
    assert TripletAdapter().adapt([]).triplets == []


token_ids = st.lists(st.integers(0, 200_000), max_size=4)
logprobs = st.lists(st.floats(-50, 0), max_size=4)
sampled = st.lists(st.tuples(st.integers(0, 200_000), st.floats(-50, 0)), min_size=1, max_size=4)
odd_values = st.one_of(token_ids, logprobs, st.text(max_size=3), st.lists(st.booleans(), max_size=2), st.floats())
call_keys = st.sampled_from(
    [
        semconv.CALL_COMPLETE,
        semconv.CALL_PROMPT_TOKEN_IDS,
        TOKENS_0,
        LOGPROBS_0,
        semconv.choice_key(1, semconv.CHOICE_TOKEN_IDS),
        f"{semconv.CALL_CHOICE}.x.token_ids",
        f"{semconv.CALL_CHOICE}.²",
    ]
)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """The attributes of a model call that is good, or spoilt in a place or two."""
    answers = draw(st.lists(sampled, max_size=3))
    choices = [([token for token, _ in answer], [logprob for _, logprob in answer]) for answer in answers]
    return call_attributes(draw(token_ids), *choices) | draw(st.dictionaries(call_keys, odd_values, max_size=2))


@given(st.lists(calls(), max_size=5))
def test_the_adapter_never_invents_tokens(attributes: list[dict[str, Any]]) -> None:
    """Every id and log-probability of a triplet stands in the span it names, and every call is used or counted."""
    spans = {str(number): model_call(number, call, span_id=str(number)) for number, call in enumerate(attributes)}
    batch = TripletAdapter().adapt(spans.values())
    used: set[str] = set()
    for triplet in batch.triplets:
        span = spans[triplet.metadata["span_id"]]
        used.add(span.span_id)
        choice: int = triplet.metadata["choice"]
        assert triplet.prompt.token_ids == span.attributes[semconv.CALL_PROMPT_TOKEN_IDS]
        assert triplet.response.token_ids == span.attributes[semconv.choice_key(choice, semconv.CHOICE_TOKEN_IDS)]
        assert triplet.response.logprobs == span.attributes[semconv.choice_key(choice, semconv.CHOICE_LOGPROBS)]
        assert len(triplet.response.token_ids) == len(triplet.response.logprobs) > 0
    assert len(used) + batch.left_out.total() == len(spans)
