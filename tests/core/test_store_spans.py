"""Spans: the first one, numbers, duplicates, what is refused, and how they are found again."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from agl_streams.errors import InvalidRequest, NotFound
from agl_streams.models import AttemptedRollout, Span
from agl_streams.store import StreamStore
from tests.support.spans import model_call, reward
from tests.support.timeline import Timeline


@pytest.fixture
async def attempted(store: StreamStore) -> AttemptedRollout:
    """A rollout with its first attempt."""
    return await store.start_rollout("x")


def ids(attempted: AttemptedRollout, **more: Any) -> dict[str, Any]:
    """What a span of the attempt begins with."""
    return {"rollout_id": attempted.rollout_id, "attempt_id": attempted.attempt.attempt_id, **more}


async def found(store: StreamStore, attempted: AttemptedRollout, **filters: Any) -> list[str]:
    """The span ids that a query finds, in its order."""
    return [span.span_id for span in await store.query_spans(attempted.rollout_id, **filters)]


async def test_the_first_span_sets_attempt_and_rollout_running(store: StreamStore, time: Timeline) -> None:
    """With its heartbeat; later spans move only the heartbeat, to exactly their time."""
    attempted = await store.start_rollout("x")
    await store.add_span(reward(1, 1.0, **ids(attempted)))
    assert await time.statuses(attempted.rollout_id) == ("running", "running")
    assert (await time.attempt(attempted.rollout_id)).last_heartbeat_time == time.now
    time.jumps(100)
    await store.add_span(reward(2, 1.0, **ids(attempted)))
    assert (await time.attempt(attempted.rollout_id)).last_heartbeat_time == time.now


async def test_a_span_comes_back_as_it_was_given(store: StreamStore, attempted: AttemptedRollout) -> None:
    """Attributes with NaN and infinity, events and links included."""
    given = model_call(3, {"n": 1, "x": math.inf, "list": [1.5, 2.5], "text": "ü" * 3000}, **ids(attempted))
    assert await store.add_span(given) == given
    assert list(await store.query_spans(attempted.rollout_id)) == [given]
    odd = reward(4, 1.0, **ids(attempted)).model_copy(update={"attributes": {"x": math.nan}})
    await store.add_span(odd)
    stored = (await store.query_spans(attempted.rollout_id))[1]
    assert math.isnan(float(str(stored.attributes["x"])))


async def test_a_duplicate_is_dropped(store: StreamStore, attempted: AttemptedRollout) -> None:
    """A span id is stored once per attempt, the first one; it answers None, and is left out of a bulk's answer."""
    first = reward(1, 1.0, span_id="a", **ids(attempted))
    assert await store.add_span(first) is not None
    assert await store.add_span(reward(9, 2.0, span_id="a", **ids(attempted))) is None
    other = reward(2, 1.0, span_id="b", **ids(attempted))
    assert await store.add_many_spans([first, other, other, first]) == [other]
    assert list(await store.query_spans(attempted.rollout_id)) == [first, other]
    await store.settle()
    assert (await store.rollout_sums(attempted.rollout_id)).spans == 2


async def test_a_bulk_of_any_size_stores_each_span_once(store: StreamStore, attempted: AttemptedRollout) -> None:
    """More than one call may hold, with a span given twice far apart."""
    spans = [reward(0, 1.0, span_id=f"s{number}", **ids(attempted)) for number in range(450)]
    stored = await store.add_many_spans([*spans, spans[0]], assign_sequence=True)
    assert [span.sequence_id for span in stored] == list(range(1, 451))
    assert await store.add_many_spans(spans, assign_sequence=True) == []


async def test_the_same_span_id_in_another_attempt_is_another_span(store: StreamStore) -> None:
    """Two attempts may have equal span ids."""
    first = await store.start_rollout("x")
    second = await store.start_attempt(first.rollout_id)
    for attempted in (first, second):
        assert await store.add_span(reward(1, 1.0, span_id="a", **ids(attempted))) is not None
    assert (await store.query_spans(first.rollout_id)).total == 2


async def test_numbers_count_from_one_within_a_rollout(store: StreamStore, attempted: AttemptedRollout) -> None:
    """Over all its attempts, and whether rollout and attempt exist is not asked."""
    other = await store.start_attempt(attempted.rollout_id)
    numbers = [await store.get_next_span_sequence_id(*pair) for pair in _pairs(attempted, other, attempted)]
    assert numbers == [1, 2, 3]
    assert await store.get_next_span_sequence_id("nobody", "nothing") == 1


async def test_many_numbers_are_handed_out_in_the_order_asked(store: StreamStore) -> None:
    """Consecutive within each rollout."""
    pairs = [("r1", "a"), ("r2", "a"), ("r1", "b"), ("r1", "a")]
    assert await store.get_many_span_sequence_ids(pairs) == [1, 1, 2, 3]
    assert await store.get_many_span_sequence_ids([]) == []


async def test_an_explicit_number_is_never_handed_out_again(store: StreamStore, attempted: AttemptedRollout) -> None:
    """It raises the counter; a smaller one does not lower it."""
    pair = _pairs(attempted)[0]
    await store.add_span(reward(7, 1.0, **ids(attempted)))
    assert await store.get_next_span_sequence_id(*pair) == 8
    await store.add_span(reward(3, 1.0, **ids(attempted)))
    assert await store.get_next_span_sequence_id(*pair) == 9


async def test_a_duplicates_number_counts_and_a_rejected_ones_does_not(
    store: StreamStore, attempted: AttemptedRollout
) -> None:
    """What was refused has no number."""
    pair = _pairs(attempted)[0]
    await store.add_span(reward(1, 1.0, span_id="a", **ids(attempted)))
    await store.add_span(reward(20, 1.0, span_id="a", **ids(attempted)))
    assert await store.get_next_span_sequence_id(*pair) == 21
    with pytest.raises(NotFound):
        await store.add_span(reward(50, 1.0, rollout_id=pair[0], attempt_id="at-none"))
    assert await store.get_next_span_sequence_id(*pair) == 22


async def test_assigned_numbers_follow_those_handed_out(store: StreamStore, attempted: AttemptedRollout) -> None:
    """The number is given in the call that stores the span, or that admits a model call."""
    pair = _pairs(attempted)[0]
    assert await store.admit_call(*pair) == 1
    span = await store.add_span(reward(0, 1.0, **ids(attempted)), assign_sequence=True)
    assert span is not None
    assert span.sequence_id == 2
    assert await store.admit_call(*pair) == 3
    assert [one.sequence_id for one in await store.query_spans(pair[0])] == [2]


@pytest.mark.parametrize("wrong", [{"rollout_id": "nobody"}, {"attempt_id": "at-none"}, {"rollout_id": "odd id"}])
async def test_a_span_of_nothing_is_refused(
    store: StreamStore, attempted: AttemptedRollout, wrong: dict[str, str]
) -> None:
    """NotFound names the id, and nothing is stored."""
    span = reward(1, 1.0, **{**ids(attempted), **wrong})
    with pytest.raises(NotFound, match=next(iter(wrong.values()))):
        await store.add_span(span)
    assert (await store.query_spans(attempted.rollout_id)).total == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"span_id": ""}, "span id"),
        ({"span_id": "x" * 257}, "span id"),
        ({"span_id": "a\nb"}, "span id"),
        ({"sequence_id": -1}, "sequence_id"),
        ({"sequence_id": 2**60}, "sequence_id"),
        ({"name": "\ud800"}, "surrogate"),
    ],
)
async def test_a_bad_span_is_refused(
    store: StreamStore, attempted: AttemptedRollout, change: dict[str, Any], named: str
) -> None:
    """The error names the field; a bulk with one such span stores none."""
    bad = reward(1, 1.0, **ids(attempted)).model_copy(update=change)
    for spans in ([bad], [reward(1, 1.0, **ids(attempted)), bad]):
        with pytest.raises(InvalidRequest, match=named):
            await store.add_many_spans(spans)
    assert (await store.query_spans(attempted.rollout_id)).total == 0


async def test_spans_are_ordered_by_number_then_start_then_end(store: StreamStore, attempted: AttemptedRollout) -> None:
    """One without a time comes after those with one."""
    times = [(2, 1.0, 2.0), (1, 5.0, 6.0), (1, 4.0, 9.0), (1, 4.0, 8.0), (1, None, None)]
    for number, (sequence_id, start, end) in enumerate(times):
        span = reward(sequence_id, 1.0, span_id=f"s{number}", **ids(attempted))
        await store.add_span(span.model_copy(update={"start_time": start, "end_time": end}))
    assert await found(store, attempted) == ["s3", "s2", "s1", "s4", "s0"]


async def test_spans_are_found_by_attempt(store: StreamStore, attempted: AttemptedRollout) -> None:
    """Of one attempt, of the latest, of all; of an unknown one nothing."""
    other = await store.start_attempt(attempted.rollout_id)
    await store.add_span(reward(1, 1.0, span_id="first", **ids(attempted)))
    await store.add_span(reward(2, 1.0, span_id="second", **ids(other)))
    assert await found(store, attempted) == ["first", "second"]
    assert await found(store, attempted, attempt_id="latest") == ["second"]
    assert await found(store, attempted, attempt_id=attempted.attempt.attempt_id) == ["first"]
    assert await found(store, attempted, attempt_id="at-none") == []
    assert (await store.query_spans("nobody")).total == 0


async def test_filters_of_spans_join_and_the_attempt_always_applies(
    store: StreamStore, attempted: AttemptedRollout
) -> None:
    """Exact and by part, case and all, joined by `and` or `or`; with no filter, `or` finds everything."""
    other = await store.start_attempt(attempted.rollout_id)
    spans = [
        reward(1, 1.0, span_id="a1", trace_id="T1", **ids(attempted)),
        reward(2, 1.0, span_id="a2", trace_id="T2", parent_id="a1", **ids(attempted)),
        reward(3, 1.0, span_id="b1", trace_id="T1", parent_id="a2", **ids(other)),
    ]
    await store.add_many_spans([span.model_copy(update={"name": f"n{span.span_id}"}) for span in spans])
    mine = attempted.attempt.attempt_id
    assert await found(store, attempted, trace_id="T1") == ["a1", "b1"]
    assert await found(store, attempted, attempt_id=mine, trace_id="T1") == ["a1"]
    assert await found(store, attempted, span_id_contains="a") == ["a1", "a2"]
    assert await found(store, attempted, span_id_contains="A") == []
    assert await found(store, attempted, parent_id="a2") == ["b1"]
    assert await found(store, attempted, parent_id_contains="a") == ["a2", "b1"]
    assert await found(store, attempted, name="na1", trace_id="T2") == []
    assert await found(store, attempted, name="na1", trace_id="T2", filter_logic="or") == ["a1", "a2"]
    assert await found(store, attempted, name_contains="b1", span_id="a1", filter_logic="or") == ["a1", "b1"]
    assert await found(store, attempted, attempt_id=mine, filter_logic="or") == ["a1", "a2"]


async def test_pages_of_spans(store: StreamStore, attempted: AttemptedRollout) -> None:
    """Limit and offset cut the ordered list; the total is that of all."""
    await store.add_many_spans([reward(number, 1.0, span_id=f"s{number}", **ids(attempted)) for number in range(5)])
    page = await store.query_spans(attempted.rollout_id, limit=2, offset=3, sort_by="span_id", sort_order="desc")
    assert [span.span_id for span in page] == ["s1", "s0"]
    assert (page.total, page.limit, page.offset) == (5, 2, 3)


async def test_a_span_of_the_sdk_is_converted(store: StreamStore, attempted: AttemptedRollout) -> None:
    """Nanoseconds to seconds, hex ids; without a number it takes the next one."""
    with TracerProvider().get_tracer("t").start_as_current_span("work", attributes={"k": 1}) as open_span:
        open_span.add_event("moment")
    pair = _pairs(attempted)[0]
    stored = await store.add_otel_span(*pair, open_span)  # pyright: ignore[reportArgumentType]  the API declares the writing half of the SDK's span
    assert isinstance(stored, Span)
    assert (stored.name, stored.sequence_id, stored.attributes["k"]) == ("work", 1, 1)
    assert len(stored.span_id) == 16
    assert stored.start_time is not None
    assert stored.end_time is not None
    assert 0 <= stored.end_time - stored.start_time < 60
    assert [event.name for event in stored.events] == ["moment"]
    assert await store.add_otel_span(*pair, open_span, 9) is None  # pyright: ignore[reportArgumentType]  as above
    assert await store.get_next_span_sequence_id(*pair) == 10


async def test_sums_follow_the_spans_of_all_attempts(store: StreamStore, attempted: AttemptedRollout) -> None:
    """Per attempt and per rollout; the last reward in the order of storing is the reward."""
    other = await store.start_attempt(attempted.rollout_id)
    await store.add_many_spans([model_call(1, **ids(attempted)), reward(2, 0.5, **ids(attempted))])
    await store.add_many_spans([reward(4, 2.0, **ids(other)), model_call(3, **ids(other))])
    await store.settle()
    sums = await store.rollout_sums(attempted.rollout_id)
    assert (sums.spans, sums.model_calls, sums.rewards, sums.reward) == (4, 2, 2, 2.0)
    assert (sums.prompt_tokens, sums.completion_tokens, sums.incomplete) == (2, 2, 0)
    first = await store.attempt_sums(*_pairs(attempted)[0])
    assert (first.spans, first.model_calls, first.reward) == (2, 1, 0.5)


def _pairs(*attempts: AttemptedRollout) -> list[tuple[str, str]]:
    return [(one.rollout_id, one.attempt.attempt_id) for one in attempts]
