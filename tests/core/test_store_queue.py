"""Who is next: order, bulk, readers that never begin, ids that callers give."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agl_streams.config import Settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.errors import InvalidRequest
from agl_streams.models import EnqueueRolloutRequest, RolloutConfig
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from tests.support.timeline import Timeline

LEASE_US = "30000000"
NOW_MS = 0  # whatever was handed over and not begun counts as never begun


async def read(store: StreamStore, count: int) -> list[tuple[str, str]]:
    """What a reader is handed: entry id and rollout."""
    reply = cast("Any", await store.connection.execute(
        "XREADGROUP", "GROUP", "runners", "reader", "COUNT", count, "STREAMS", store.functions(0).keys.tasks, ">"
    ))  # fmt: skip
    return [(entry.decode(), fields[1].decode()) for entry, fields in reply[0][1]] if reply else []


async def queue(store: StreamStore) -> list[str]:
    """The rollouts that wait, in the order in which they will be given out."""
    entries = await store.connection.execute("XRANGE", store.functions(0).keys.tasks, "-", "+")
    return [fields[1].decode() for _, fields in cast("Any", entries)]


async def enqueue(store: StreamStore, *rollout_ids: str) -> None:
    """These rollouts, in one call."""
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=one, rollout_id=one) for one in rollout_ids])


async def test_first_in_is_first_out(store: StreamStore) -> None:
    """In one call and in several."""
    await enqueue(store, "a", "b")
    await enqueue(store, "c")
    await enqueue(store, "d", "e")
    taken = await store.dequeue_many_rollouts(limit=3)
    assert [one.rollout_id for one in taken] == ["a", "b", "c"]
    last = await store.dequeue_rollout()
    assert last is not None
    assert last.rollout_id == "d"


async def test_a_large_bulk_keeps_its_order(store: StreamStore) -> None:
    """More than one call may hold, in and out."""
    ids = [f"r{number}" for number in range(230)]
    await enqueue(store, *ids)
    assert [one.rollout_id for one in await store.query_rollouts()] == ids
    assert [one.rollout_id for one in await store.dequeue_many_rollouts(limit=500)] == ids


@pytest.mark.parametrize("limit", [0, -1, -5])
async def test_a_limit_of_nothing_takes_nothing(store: StreamStore, limit: int) -> None:
    """And the rollout stays where it is."""
    await enqueue(store, "a")
    assert await store.dequeue_many_rollouts(limit=limit) == []
    assert await queue(store) == ["a"]


async def test_an_empty_queue_gives_nothing(store: StreamStore) -> None:
    """None for one, an empty list for many."""
    assert await store.dequeue_rollout() is None
    assert await store.dequeue_many_rollouts(limit=3) == []


async def test_a_dequeue_begins_an_attempt_in_the_same_step(store: StreamStore, time: Timeline) -> None:
    """Number 1, preparing, the worker's; the rollout is preparing."""
    await enqueue(store, "a")
    taken = await time.take(worker_id="w")
    attempt = taken.attempt
    assert (taken.status, attempt.status, attempt.sequence_id) == ("preparing", "preparing", 1)
    assert (attempt.worker_id, attempt.start_time, attempt.last_heartbeat_time) == ("w", time.now, None)
    assert await store.get_rollout_by_id("a") == taken


async def test_no_two_ask_and_get_the_same(store: StreamStore, settings: Settings) -> None:
    """Two processes that dequeue by turns share the rollouts out."""
    await enqueue(store, *"abcdef")
    async with await StreamStore.connect(settings=settings) as other:
        taken = [await one.dequeue_rollout() for one in (store, other) * 3]
    assert sorted(one.rollout_id for one in taken if one) == list("abcdef")


@pytest.mark.leaves_pending
async def test_what_is_handed_to_a_reader_is_not_given_to_another(store: StreamStore) -> None:
    """An entry is delivered once, until it is given back."""
    await enqueue(store, "a", "b")
    entries = await read(store, 1)
    assert [rollout_id for _, rollout_id in entries] == ["a"]
    taken = await store.dequeue_many_rollouts(limit=5)
    assert [one.rollout_id for one in taken] == ["b"]


@pytest.mark.leaves_pending
async def test_an_entry_that_is_given_back_goes_to_the_end(store: StreamStore) -> None:
    """It uses up no delivery, however often; a second release of the same entry is void."""
    await enqueue(store, "a", "b")
    for _ in range(5):
        entries = await read(store, 2)
        assert await store.functions(0).release(entries[:1]) == 1
        assert await store.functions(0).release(entries[:1]) == 0
        await store.functions(0).release(entries[1:])
    assert await queue(store) == ["a", "b"]
    assert (await store.functions(0).expire(LEASE_US, NOW_MS, 1)).redelivered == 0


@pytest.mark.leaves_pending
async def test_what_a_reader_never_begins_is_delivered_again(store: StreamStore, time: Timeline) -> None:
    """Under a new entry at the end of the queue; the old one is void, and its reader cannot begin it."""
    await enqueue(store, "a", "b")
    ((entry, rollout_id),) = await read(store, 1)
    result = await store.functions(0).expire(LEASE_US, NOW_MS, 3)
    assert (result.redelivered, await queue(store)) == (1, ["b", "a"])
    assert await store.functions(0).begin([(entry, rollout_id, "at-late")], "reader", LEASE_US) == [None]
    assert await queue(store) == ["b", "a"]
    assert (await time.rollout("a")).status == "queuing"


@pytest.mark.leaves_pending
async def test_what_is_never_begun_too_often_is_given_up(store: StreamStore, time: Timeline) -> None:
    """Each such delivery counts; at `max_deliveries` the rollout fails with the reason, before any attempt."""
    await enqueue(store, "a")
    for _ in range(3):
        await read(store, 1)
        await store.functions(0).expire(LEASE_US, NOW_MS, 3)
    rollout = await time.rollout("a")
    assert (rollout.status, rollout.metadata) == ("failed", {REASON: "never_begun"})
    assert await store.connection.execute("XLEN", store.functions(0).keys.dead) == 1
    assert await queue(store) == []


@pytest.mark.leaves_pending
async def test_beginning_twice_begins_once(store: StreamStore) -> None:
    """The repeat of a begin shows the same attempt."""
    await enqueue(store, "a")
    ((entry, rollout_id),) = await read(store, 1)
    first = await store.functions(0).begin([(entry, rollout_id, "at-1")], "reader", LEASE_US)
    again = await store.functions(0).begin([(entry, rollout_id, "at-1")], "reader", LEASE_US)
    assert first == again
    assert (await store.query_attempts("a")).total == 1


@pytest.mark.leaves_pending
async def test_a_void_entry_cannot_be_begun(store: StreamStore, time: Timeline) -> None:
    """A rollout that was cancelled, or taken up by hand, between delivery and begin is not begun."""
    await enqueue(store, "cancelled", "started", "good")
    entries = await read(store, 3)
    await store.cancel_rollout("cancelled", "no")
    await store.start_attempt("started")
    named = [(entry, rollout_id, f"at-{rollout_id}") for entry, rollout_id in entries]
    views = await store.functions(0).begin(named, "reader", LEASE_US)
    assert [view is not None for view in views] == [False, False, True]
    assert await time.statuses("good") == ("preparing", "preparing")
    assert (await time.rollout("cancelled")).status == "cancelled"


async def test_a_consumer_gives_back_what_it_has_no_place_for(store: StreamStore) -> None:
    """It begins as many as it has places, and closing leaves nothing in its hands."""
    await enqueue(store, "a", "b", "c")
    consumer = RolloutConsumer(store, "w")
    assert [one.rollout_id for one in await consumer.next(2)] == ["a", "b"]
    await consumer.close()
    assert await queue(store) == ["c"]


async def test_a_given_id_makes_an_enqueue_repeatable(store: StreamStore, time: Timeline) -> None:
    """The second enqueue returns the first rollout unchanged, whatever it says, wherever that rollout is by now."""
    first = await store.enqueue_rollout({"q": 1}, "train", metadata={"a": 1}, rollout_id="mine")
    assert await store.enqueue_rollout({"q": 2}, "val", rollout_id="mine") == first
    await time.take()
    await store.update_attempt("mine", "latest", "succeeded")
    again = await store.enqueue_rollout("other", config=RolloutConfig(max_attempts=9), rollout_id="mine")
    assert (again.input, again.status) == ({"q": 1}, "succeeded")
    assert await queue(store) == []
    assert (await store.query_rollouts()).total == 1


async def test_one_id_twice_in_a_bulk_is_one_rollout(store: StreamStore) -> None:
    """Both answers show it."""
    requests = [EnqueueRolloutRequest(input=number, rollout_id="same") for number in range(2)]
    answers = await store.enqueue_many_rollouts(requests)
    assert [answer.input for answer in answers] == [0, 0]
    assert await queue(store) == ["same"]


@pytest.mark.parametrize("rollout_id", ["a", "A.b_c~d-9", "x" * 128])
async def test_plain_ids_are_taken(store: StreamStore, rollout_id: str) -> None:
    """One to 128 of letters, digits, dot, underscore, tilde and dash."""
    assert (await store.enqueue_rollout("x", rollout_id=rollout_id)).rollout_id == rollout_id
    assert await store.get_rollout_by_id(rollout_id) is not None


@pytest.mark.parametrize("rollout_id", ["", "x" * 129, "latest", "search", "a b", "a:b", "a/b", "ü", "a\n", "{a}"])
async def test_odd_ids_are_refused(store: StreamStore, rollout_id: str) -> None:
    """The error shows the id, and nothing is enqueued."""
    with pytest.raises(InvalidRequest, match="rollout id"):
        await store.enqueue_rollout("x", rollout_id=rollout_id)
    assert (await store.query_rollouts()).total == 0
    assert await store.get_rollout_by_id(rollout_id) is None


async def test_ids_that_the_store_makes_have_their_form(store: StreamStore) -> None:
    """`ro-` and 12 hex digits, `at-` and 8, `rs-` and 12."""
    rollout = await store.enqueue_rollout("x")
    assert len(rollout.rollout_id) == 15
    assert int(rollout.rollout_id.removeprefix("ro-"), 16) >= 0
    started = await store.start_rollout("y")
    assert len(started.attempt.attempt_id) == 11
    assert int(started.attempt.attempt_id.removeprefix("at-"), 16) >= 0
    added = await store.add_resources({})
    assert len(added.resources_id) == 15
    assert int(added.resources_id.removeprefix("rs-"), 16) >= 0


async def test_start_rollout_needs_no_queue(store: StreamStore, time: Timeline) -> None:
    """It is preparing with its first attempt from the start."""
    started = await store.start_rollout("x", "test", metadata={"a": 1}, worker_id="w")
    assert (started.status, started.attempt.sequence_id, started.attempt.worker_id) == ("preparing", 1, "w")
    assert (started.mode, started.metadata, started.start_time) == ("test", {"a": 1}, time.now)
    assert await store.dequeue_rollout() is None


async def test_what_is_json_comes_back_exact(store: StreamStore) -> None:
    """Integers of 64 bits and more, every plane of Unicode, empty things; tuples as lists."""
    value: Any = {"n": [2**63, -(2**64), 2**53 + 1, 0.1, -0.0, 1e308], "t": "ü\U0001f600\x00\n", "": {}, "e": []}
    rollout = await store.enqueue_rollout(value, metadata={"t": (1, 2)})
    for found in (rollout, await store.get_rollout_by_id(rollout.rollout_id)):
        assert found is not None
        assert (found.input, found.metadata) == (value, {"t": [1, 2]})
