"""The verdict on a capture: complete only when everything that can be checked agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_proxy import checks
from agl_proxy.answer import Answer
from agl_proxy.checks import incomplete_reason
from tests.proxy.recorded import run_stream
from tests.proxy.streams import chunk, complete_stream, encode, role_chunk, sampled, usage_chunk


def read(events: list[Any]) -> Answer:
    """The capture of a stream with these events."""
    return run_stream([encode(events)])[0]


def test_a_sound_stream_is_complete() -> None:
    """Prompt, tokens, log-probabilities, finish reason, usage and terminator: complete."""
    assert incomplete_reason(read(complete_stream())) is None


def test_two_sound_choices_are_complete() -> None:
    """Usage counts the tokens of all choices together."""
    ends = [sampled(i, [2], finish_reason="stop") for i in (0, 1)]
    events = [role_chunk(0), role_chunk(1), sampled(0, [5, 6]), sampled(1, [7]), *ends, usage_chunk(5), "[DONE]"]
    assert incomplete_reason(read(events)) is None


def without(position: int) -> Callable[[], list[Any]]:
    """A sound stream that lacks one event."""

    def events() -> list[Any]:
        stream = complete_stream()
        del stream[position]
        return stream

    return events


def changed(position: int, change: Callable[[dict[str, Any]], object]) -> Callable[[], list[Any]]:
    """A sound stream in which one event's choice was changed."""

    def events() -> list[Any]:
        stream = complete_stream()
        change(stream[position]["choices"][0])
        return stream

    return events


def conflicting() -> list[Any]:
    """Two choices with different prompts."""
    ends = [sampled(i, [2], finish_reason="stop") for i in (0, 1)]
    return [role_chunk(0), role_chunk(1, (1, 2, 4)), *ends, usage_chunk(2), "[DONE]"]


# Events of a sound stream: 0 role and prompt, 1 and 2 tokens, 3 finish, 4 usage, 5 terminator.
@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (without(0), checks.NO_PROMPT_TOKEN_IDS),
        (without(1), checks.USAGE_MISMATCH),
        (without(3), checks.UNFINISHED),
        (without(4), checks.NO_USAGE),
        (without(5), checks.NO_TERMINATOR),
        (changed(1, lambda choice: choice.update(token_ids=None)), checks.LOGPROBS_MISMATCH),
        (changed(1, lambda choice: choice.update(token_ids=[])), checks.LOGPROBS_MISMATCH),
        (changed(1, lambda choice: choice.update(logprobs=None)), checks.LOGPROBS_MISMATCH),
        (changed(1, lambda choice: choice.update(token_ids=["12"])), checks.BAD_VALUES),
        (changed(1, lambda choice: choice.update(token_ids=[True])), checks.BAD_VALUES),
        (changed(1, lambda choice: choice.update(token_ids=[1.0])), checks.BAD_VALUES),
        (changed(1, lambda choice: choice.update(token_ids=7)), checks.UNREADABLE),
        (changed(1, lambda choice: choice["logprobs"]["content"][0].update(logprob=None)), checks.BAD_VALUES),
        (changed(1, lambda choice: choice["logprobs"]["content"][0].pop("logprob")), checks.UNREADABLE),
        (changed(3, lambda choice: choice.update(finish_reason="abort")), checks.ABORTED),
        (changed(3, lambda choice: choice.update(finish_reason="error")), checks.ABORTED),
        (lambda: ["[DONE]"], checks.NO_CHOICES),
        (list[Any], checks.NO_TERMINATOR),
        (conflicting, checks.PROMPT_CONFLICT),
        (lambda: [{"error": "gone"}, *complete_stream()], checks.UPSTREAM_ERROR),
        (lambda: [{"object": "error", "message": "gone"}, *complete_stream()], checks.UPSTREAM_ERROR),
        (lambda: ["a text", *complete_stream()], checks.UNREADABLE),
        (lambda: [{"choices": None}, *complete_stream()], checks.UNREADABLE),
    ],
)
def test_each_fault_has_its_reason(events: Callable[[], list[Any]], reason: str) -> None:
    """Whatever is missing or contradicts itself makes the capture incomplete, with that reason."""
    assert incomplete_reason(read(events())) == reason


def test_no_ids_at_all_is_told_from_few() -> None:
    """A server without token ids is recognised as such, one that lost some is not."""
    text = [role_chunk(), chunk(0, {"content": "a"}), chunk(0, finish_reason="stop"), usage_chunk(1), "[DONE]"]
    assert checks.without_ids(read(text))
    assert not checks.without_ids(read(without(1)()))


def test_an_integer_is_a_log_probability() -> None:
    """A server that writes 0 for 0.0 is not refused."""
    events = complete_stream()
    events[1]["choices"][0]["logprobs"]["content"][0]["logprob"] = 0
    assert incomplete_reason(read(events)) is None


@given(
    lost=st.sets(st.integers(0, 1_000), min_size=1, max_size=4),
    texts=st.lists(st.text(max_size=3), min_size=1, max_size=4),
)
def test_a_stream_that_lost_events_is_never_complete(lost: set[int], texts: list[str]) -> None:
    """No choice of lost events leaves a capture that passes for complete, if the terminator came."""
    events = complete_stream(tuple(texts))
    places = {place % (len(events) - 1) for place in lost}
    assert incomplete_reason(read([event for place, event in enumerate(events) if place not in places])) is not None


@given(st.integers(100, 599).filter(lambda status: status != 200))
def test_only_200_can_be_complete(status: int) -> None:
    """An answer with another status is incomplete, whatever it holds."""
    answer = read(complete_stream())
    answer.status_code = status
    assert incomplete_reason(answer) == checks.UPSTREAM_STATUS
