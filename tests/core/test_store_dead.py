"""Rollouts that were given up: listed with what they were and why, put on the queue again, or dropped."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, cast

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.errors import Conflict, InvalidRequest, NotFound
from agl_streams.models import Rollout, RolloutConfig, Span
from agl_streams.store import StreamStore
from tests.support.timeline import Timeline

LEASE_S = 30.0


class Deal(Protocol):
    """One of the two things that are done with a dead letter."""

    def __call__(self, store: StreamStore, rollout_id: str, /, *, request_key: str | None = None) -> Awaitable[Rollout]:
        """Do it."""
        ...


DEALS = [StreamStore.requeue_dead_letter, StreamStore.drop_dead_letter]


async def lose(store: StreamStore, time: Timeline, rollout_id: str) -> None:
    """Each runner that gets the rollout is lost, until it is given up."""
    for _ in range(store.settings.max_deliveries):
        assert (await time.take(lease_seconds=LEASE_S)).rollout_id == rollout_id
        await time.passes(LEASE_S + 1.0)


async def give_up(store: StreamStore, time: Timeline, rollout_id: str, config: RolloutConfig | None = None) -> None:
    """A new rollout that loses every runner."""
    await store.enqueue_rollout({"of": rollout_id}, rollout_id=rollout_id, config=config)
    await lose(store, time, rollout_id)


async def ids(store: StreamStore) -> list[str]:
    """Who is on the list."""
    return [letter.rollout_id for letter in await store.query_dead_letters()]


async def event_types(store: StreamStore) -> list[str]:
    """The types of the events so far."""
    entries = cast("Any", await store.connection.execute("XRANGE", store.functions(0).keys.log, "-", "+"))
    return [fields[1].decode() for _, fields in entries]


async def test_a_dead_letter_has_the_rollout_and_the_reason(store: StreamStore, time: Timeline) -> None:
    """What was given up is listed in that order, with input, reason, deliveries and newest attempt."""
    await give_up(store, time, "first")
    await give_up(store, time, "second")
    letters = await store.query_dead_letters()
    assert letters.total == 2
    assert [(one.rollout_id, one.reason, one.deliveries) for one in letters] == [
        ("first", "worker_lost", 3),
        ("second", "worker_lost", 3),
    ]
    assert letters[0].rollout == await time.rollout("first")
    assert letters[0].rollout.input == {"of": "first"}
    assert await store.get_dead_letter("second") == letters[1]


async def test_the_list_comes_in_pages(store: StreamStore, time: Timeline) -> None:
    """A page has its part of the list and the number of all; a limit of 0 is refused."""
    for name in ("a", "b", "c"):
        await give_up(store, time, name)
    page = await store.query_dead_letters(limit=1, offset=1)
    assert ([one.rollout_id for one in page], page.total) == (["b"], 3)
    with pytest.raises(InvalidRequest, match="got 0"):
        await store.query_dead_letters(limit=0)


async def test_shards_have_one_list(settings: Settings) -> None:
    """The list of a namespace of several shards is one, in the order in which rollouts were given up."""
    sharded = load_settings(**{**settings.model_dump(), "shards": 4})
    async with await StreamStore.connect(settings=sharded) as store:
        time = await Timeline(store).watched()
        names = [f"r{number}" for number in range(6)]
        for name in names:
            await give_up(store, time, name)
        assert sorted(await ids(store)) == names
        assert [one.rollout_id for one in await store.query_dead_letters(limit=2, offset=2)] == (await ids(store))[2:4]
        await store.requeue_dead_letter("r3")
        assert await ids(store) == [name for name in names if name != "r3"]


async def test_a_requeued_rollout_has_all_its_deliveries_again(store: StreamStore, time: Timeline) -> None:
    """It is on the queue once and off the list, and may lose as many runners as a new one before it is given up."""
    await give_up(store, time, "r")
    again = await store.requeue_dead_letter("r")
    assert (again.status, again.end_time, again.metadata) == ("requeuing", None, {})
    assert await ids(store) == []
    assert await store.get_dead_letter("r") is None
    assert await store.connection.execute("XLEN", store.functions(0).keys.tasks) == 1
    await lose(store, time, "r")
    assert await ids(store) == ["r"]
    assert len(await store.query_attempts("r")) == 6


async def test_a_requeued_rollout_has_all_its_attempts_again(store: StreamStore, time: Timeline) -> None:
    """What came before the requeue uses up none of max_attempts: two more may fail where two are allowed."""
    await give_up(store, time, "r", RolloutConfig(max_attempts=2, retry_condition=["failed"]))
    await store.requeue_dead_letter("r")
    for expected in ("requeuing", "failed"):
        taken = await time.take()
        await store.update_attempt("r", taken.attempt.attempt_id, "failed")
        assert (await time.rollout("r")).status == expected
    assert await ids(store) == []


async def test_a_dropped_rollout_stays_failed(store: StreamStore, time: Timeline) -> None:
    """It goes off the list, and keeps its status, its reason and its end."""
    await give_up(store, time, "r")
    before = await time.rollout("r")
    assert await store.drop_dead_letter("r") == before
    assert await ids(store) == []
    assert await time.rollout("r") == before
    assert await time.store.dequeue_rollout() is None


async def test_each_deed_is_one_event(store: StreamStore, time: Timeline) -> None:
    """The log tells who was put back and who was dropped."""
    await give_up(store, time, "r")
    await store.requeue_dead_letter("r")
    await lose(store, time, "r")
    await store.drop_dead_letter("r")
    told = [kind for kind in await event_types(store) if kind.startswith("dead_")]
    assert told == ["dead_requeued", "dead_dropped"]


@pytest.mark.parametrize("deal", DEALS)
async def test_a_repeat_of_the_request_changes_nothing(store: StreamStore, time: Timeline, deal: Deal) -> None:
    """With the key of the first try it gets an answer, and no second event is written."""
    await give_up(store, time, "r")
    first = await deal(store, "r", request_key="k")
    events = await event_types(store)
    assert await deal(store, "r", request_key="k") == first
    assert await event_types(store) == events


@pytest.mark.parametrize("deal", DEALS)
async def test_what_is_no_dead_letter_is_refused(store: StreamStore, time: Timeline, deal: Deal) -> None:
    """An unknown rollout, one that waits, one that failed by itself and one dealt with before: each a clear error."""
    with pytest.raises(NotFound, match="no such rollout"):
        await deal(store, "unknown")
    with pytest.raises(NotFound, match="A-Z"):
        await deal(store, "a:b")
    await store.enqueue_rollout(1, rollout_id="r")
    with pytest.raises(Conflict, match=r"'r'.*never given up"):
        await deal(store, "r")
    taken = await time.take()
    await store.update_attempt("r", taken.attempt.attempt_id, "failed")
    with pytest.raises(Conflict, match="never given up"):
        await deal(store, "r")
    await give_up(store, time, "lost")
    await deal(store, "lost")
    with pytest.raises(Conflict, match="since"):
        await deal(store, "lost")


@pytest.mark.parametrize("status", ["queuing", "succeeded", "cancelled"])
async def test_a_rollout_that_is_moved_by_hand_is_no_dead_letter(
    store: StreamStore, time: Timeline, status: str
) -> None:
    """update_rollout with another status takes the letter off the list; other changes leave it there."""
    await give_up(store, time, "r")
    await store.update_rollout("r", mode="test")
    assert await ids(store) == ["r"]
    await store.update_rollout("r", status=status)
    assert await ids(store) == []
    with pytest.raises(Conflict):
        await store.requeue_dead_letter("r")


async def test_a_new_attempt_by_hand_ends_the_letter(store: StreamStore, time: Timeline) -> None:
    """start_attempt opens a rollout that was given up, so it is on the list no longer."""
    await give_up(store, time, "r")
    await store.start_attempt("r")
    assert await ids(store) == []


async def test_a_late_sign_of_life_does_not_raise_the_dead(store: StreamStore, time: Timeline) -> None:
    """A span of the lost attempt is stored, and the rollout stays given up and on the list."""
    await give_up(store, time, "r")
    attempt = await time.attempt("r")
    span = Span.from_attributes(attributes={}, rollout_id="r", attempt_id=attempt.attempt_id)
    assert await store.add_span(span, assign_sequence=True)
    assert (await time.rollout("r")).status == "failed"
    assert await ids(store) == ["r"]


async def test_a_lost_runner_that_shows_life_takes_a_requeued_rollout_back(store: StreamStore, time: Timeline) -> None:
    """As with any rollout that waits: its newest attempt goes on, and the queue is empty."""
    await give_up(store, time, "r")
    await store.requeue_dead_letter("r")
    attempt = await time.attempt("r")
    span = Span.from_attributes(attributes={}, rollout_id="r", attempt_id=attempt.attempt_id)
    await store.add_span(span, assign_sequence=True)
    assert await time.statuses("r") == ("running", "running")
    assert await store.dequeue_rollout() is None
