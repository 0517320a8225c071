"""Request keys: a repeat of a call, from any process, changes nothing and is told what the first was told."""

from __future__ import annotations

import pytest

from agl_streams.config import Settings
from agl_streams.errors import InvalidRequest
from agl_streams.models import AttemptedRollout, NamedResources, PromptTemplate, Span
from agl_streams.store import StreamStore
from agl_streams.store.repeats import MAX_KEY, RequestKey


def a_span(attempted: AttemptedRollout, span_id: str) -> Span:
    return Span.from_attributes(
        attributes={}, rollout_id=attempted.rollout_id, attempt_id=attempted.attempt.attempt_id, span_id=span_id
    )


def test_all_that_a_request_needs_follows_from_its_key() -> None:
    """Equal keys give equal ids and tokens, other keys and other places give others."""
    one, again, other = RequestKey.of("a"), RequestKey.of("a"), RequestKey.of("b")
    assert (one.token, one.rollout_id, one.attempt_ids(0, 3)) == (
        again.token,
        again.rollout_id,
        again.attempt_ids(0, 3),
    )
    assert len({one.token, other.token, RequestKey.of(None).token, RequestKey.of(None).token}) == 4
    assert len({*one.attempt_ids(0, 3), *other.attempt_ids(0, 3)}) == 6
    assert one.resources_id != other.resources_id


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY + 1)])
def test_a_key_of_an_odd_length_is_refused(key: str) -> None:
    """An empty key, or one that is no key at all, is the caller's mistake."""
    with pytest.raises(InvalidRequest, match="request key"):
        RequestKey.of(key)


async def test_a_repeated_dequeue_is_given_the_same_rollouts(store: StreamStore) -> None:
    """The repeat of a dequeue whose answer was lost opens no second attempt; another request gets the next rollout."""
    first, second = [await store.enqueue_rollout(number) for number in range(2)]
    given = await store.dequeue_rollout("w", request_key="k1")
    again = await store.dequeue_rollout("w", request_key="k1")
    other = await store.dequeue_rollout("w", request_key="k2")
    assert given is not None
    assert again is not None
    assert other is not None
    assert given.rollout_id == again.rollout_id == first.rollout_id
    assert given.attempt == again.attempt
    assert other.rollout_id == second.rollout_id


async def test_what_was_dequeued_can_be_asked_for_without_taking_more(settings: Settings) -> None:
    """`dequeued_before` finds a lost answer in whatever shard it was, and leaves the queue alone."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"shards": 3})) as store:
        made = [await store.enqueue_rollout(number) for number in range(5)]
        assert await store.dequeued_before("k", limit=2) == []
        given = await store.dequeue_many_rollouts(limit=2, request_key="k")
        found = await store.dequeued_before("k", limit=2)
        assert sorted(one.rollout_id for one in found) == sorted(one.rollout_id for one in given)
        waiting = await store.query_rollouts(status_in=["queuing"])
        assert len(waiting) == len(made) - 2


async def test_a_repeated_start_makes_one_rollout_and_one_attempt(store: StreamStore) -> None:
    """`start_rollout` and `start_attempt` with the same key again answer with what the first try made."""
    started = await store.start_rollout({"q": 1}, request_key="s")
    assert await store.start_rollout({"q": 1}, request_key="s") == started
    opened = await store.start_attempt(started.rollout_id, request_key="a")
    assert (await store.start_attempt(started.rollout_id, request_key="a")).attempt == opened.attempt
    assert [attempt.sequence_id for attempt in await store.query_attempts(started.rollout_id)] == [1, 2]


async def test_a_repeated_span_is_answered_as_the_first_was(store: StreamStore) -> None:
    """The same request gets its number again; a later request that brings the same span is told of the duplicate."""
    attempted = await store.start_rollout(None)
    spans = [a_span(attempted, span_id) for span_id in ("a", "b")]
    stored = await store.add_many_spans(spans, assign_sequence=True, request_key="k")
    assert [span.sequence_id for span in stored] == [1, 2]
    assert await store.add_many_spans(spans, assign_sequence=True, request_key="k") == stored
    assert await store.number_spans(spans, request_key="other") == [None, None]
    assert await store.add_span(spans[0]) is None


async def test_a_repeated_update_of_resources_makes_one_version(store: StreamStore) -> None:
    """Adding and updating resources twice with one key stores once."""
    bundle: NamedResources = {"p": PromptTemplate(template="x", engine="f-string")}
    added = await store.add_resources(bundle, request_key="k")
    assert await store.add_resources(bundle, request_key="k") == added
    updated = await store.update_resources(added.resources_id, bundle, request_key="u")
    assert await store.update_resources(added.resources_id, bundle, request_key="u") == updated
    assert updated.version == 2


async def test_statistics_count_everything_that_was_written(store: StreamStore) -> None:
    """The counts hold at the moment of the call, sums of spans included, though no aggregator runs."""
    await store.enqueue_rollout(1)
    attempted = await store.start_rollout(2, worker_id="w")
    await store.add_many_spans([a_span(attempted, "a"), a_span(attempted, "b")], assign_sequence=True)
    await store.update_worker("v")
    await store.add_resources({})
    found = await store.statistics()
    assert found.pop("uptime") >= 0
    assert found == {
        "name": "StreamStore",
        "total_rollouts": 2,
        "total_attempts": 1,
        "total_spans": 2,
        "total_resources": 1,
        "total_workers": 2,
    }
