"""Chapter 2: an attempt is one try at a rollout; spans are what happened during it."""

from __future__ import annotations

from typing import Any

import pytest

from agl_streams import AttemptedRollout, NotFound, Span, StreamStore


@pytest.fixture
async def attempt(store: StreamStore) -> AttemptedRollout:
    """A rollout with its first attempt open."""
    return await store.start_rollout({"question": "What is 2 + 2?"})


def span(attempt: AttemptedRollout, name: str, **fields: Any) -> Span:
    """A span of the attempt, as instrumented code would make it."""
    ids: dict[str, Any] = {"rollout_id": attempt.rollout_id, "attempt_id": attempt.attempt.attempt_id}
    return Span.from_attributes(name=name, attributes={"step": name}, **(ids | fields))


async def test_the_first_span_sets_an_attempt_running(store: StreamStore, attempt: AttemptedRollout) -> None:
    """An attempt is preparing until its first span arrives, and its rollout follows it."""
    assert (attempt.status, attempt.attempt.status) == ("preparing", "preparing")

    await store.add_span(span(attempt, "think"), assign_sequence=True)

    rollout = await store.get_rollout_by_id(attempt.rollout_id)
    assert isinstance(rollout, AttemptedRollout)
    assert (rollout.status, rollout.attempt.status) == ("running", "running")


async def test_the_store_numbers_the_spans(store: StreamStore, attempt: AttemptedRollout) -> None:
    """Spans of a rollout are numbered from 1 by the store, because clocks of different machines disagree."""
    stored = await store.add_many_spans(
        [span(attempt, "think", start_time=200.0), span(attempt, "act", start_time=100.0)], assign_sequence=True
    )

    assert [(one.name, one.sequence_id) for one in stored] == [("think", 1), ("act", 2)]
    found = await store.query_spans(attempt.rollout_id)
    assert [one.name for one in found] == ["think", "act"], "by number, whatever their clocks say"


async def test_a_number_can_be_taken_before_its_span_is_made(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A model call takes its number when it begins, so that it stands before what happened while it ran."""
    number = await store.admit_call(attempt.rollout_id, attempt.attempt.attempt_id)
    await store.add_span(span(attempt, "meanwhile"), assign_sequence=True)
    await store.add_span(span(attempt, "model call", sequence_id=number))

    assert [one.name for one in await store.query_spans(attempt.rollout_id)] == ["model call", "meanwhile"]


async def test_a_span_is_stored_once(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A span id that the attempt already has is dropped, so an exporter may send its batch again."""
    one = span(attempt, "think", span_id="00f067aa0ba902b7")

    assert await store.add_span(one, assign_sequence=True) is not None
    assert await store.add_span(one, assign_sequence=True) is None
    assert len(await store.query_spans(attempt.rollout_id)) == 1


async def test_spans_are_found_by_what_they_are(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A query filters by name, id or trace, of one attempt, of the latest, or of all."""
    await store.add_many_spans([span(attempt, name) for name in ("think", "act", "think")], assign_sequence=True)

    thoughts = await store.query_spans(attempt.rollout_id, "latest", name="think")
    last = await store.query_spans(attempt.rollout_id, sort_order="desc", limit=1)

    assert [one.sequence_id for one in thoughts] == [1, 3]
    assert [one.sequence_id for one in last] == [3]
    assert last.total == 3


async def test_a_span_is_a_heartbeat(store: StreamStore, attempt: AttemptedRollout) -> None:
    """Each span shows that its attempt is alive."""
    assert attempt.attempt.last_heartbeat_time is None

    await store.add_span(span(attempt, "think"), assign_sequence=True)

    latest = await store.get_latest_attempt(attempt.rollout_id)
    assert latest is not None
    assert latest.last_heartbeat_time is not None


async def test_a_late_span_is_kept_and_moves_nothing(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A span that arrives after the end of its attempt is stored, and the attempt stays ended."""
    await store.update_attempt(attempt.rollout_id, "latest", status="succeeded")

    await store.add_span(span(attempt, "afterthought"), assign_sequence=True)

    rollout = await store.get_rollout_by_id(attempt.rollout_id)
    assert rollout is not None
    assert rollout.status == "succeeded"
    assert [one.name for one in await store.query_spans(attempt.rollout_id)] == ["afterthought"]


async def test_a_span_needs_its_attempt(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A span of an unknown attempt is refused, and the error names it."""
    with pytest.raises(NotFound, match="at-nowhere"):
        await store.add_span(span(attempt, "think", attempt_id="at-nowhere"), assign_sequence=True)
