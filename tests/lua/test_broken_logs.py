"""A log that misses an event, or has one of an unknown type: fold and replay stop, say so, and move nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.errors import Gap, NamespaceError, Upgrade, WrongShardCount
from agl_streams.fold import State, fold
from agl_streams.replay import read_history, rebuild
from agl_streams.store import StreamStore
from tests.support.rebuild import durable_content
from tests.support.spans import reward


@pytest.fixture
async def written(store: StreamStore) -> StreamStore:
    """A store with a few events, none of them folded: two rollouts, an attempt, spans one by one."""
    for number in range(2):
        await store.enqueue_rollout(number, rollout_id=f"r{number}")
    attempted = await store.dequeue_rollout()
    assert attempted is not None
    for number in range(3):
        ids = {"rollout_id": "r0", "attempt_id": attempted.attempt.attempt_id}
        await store.add_span(reward(number, 1.0, span_id=f"s{number}", **ids))
    return store


async def log_ids(store: StreamStore) -> list[bytes]:
    """The ids of the log's entries."""
    entries = await store.connection.execute("XRANGE", store.functions(0).keys.log, "-", "+")
    return [entry[0] for entry in cast("Sequence[Any]", entries)]


async def write_unknown(store: StreamStore) -> None:
    """What a newer release may write: an event of a type of its own, properly numbered."""
    keys = store.functions(0).keys
    n = cast("bytes", await store.connection.execute("HGET", keys.meta, "n"))
    number = int(n) + 1
    await store.connection.execute("XADD", keys.log, "*", "type", "weather", "n", number, "time", 1)
    await store.connection.execute("HSET", keys.meta, "n", number)


async def test_fold_stops_before_a_missing_event(written: StreamStore, redis_url: str) -> None:
    """What comes before the gap is added up once; the rest waits, however often fold is called."""
    await written.connection.execute("XDEL", written.functions(0).keys.log, (await log_ids(written))[-2])
    for _ in range(2):
        with pytest.raises(Gap, match="misses an event"):
            await written.fold_once(0)
        assert (await written.rollout_sums("r0")).spans == 1
    before = durable_content(redis_url, written.settings.namespace)
    with pytest.raises(Gap):
        await written.settle()
    assert durable_content(redis_url, written.settings.namespace) == before


async def test_fold_stops_before_an_unknown_event(written: StreamStore) -> None:
    """It asks for an upgrade and leaves the event, and what follows it, to a newer release."""
    await write_unknown(written)
    await written.enqueue_rollout("after", rollout_id="after")
    for _ in range(2):
        with pytest.raises(Upgrade, match="weather"):
            await written.fold_once(0)
        assert (await written.rollout_sums("r0")).spans == 3
    position = await written.connection.execute("HGET", written.functions(0).keys.meta, "folded")
    assert position == b"7"


async def test_a_log_with_a_gap_is_not_replayed(written: StreamStore, settings: Settings) -> None:
    """Reading and rebuilding raise Gap with the number that was to come."""
    await written.connection.execute("XDEL", written.functions(0).keys.log, (await log_ids(written))[2])
    with pytest.raises(Gap, match="has number 4, and 3 was to come"):
        [one async for one in read_history(written, 0)]
    other = load_settings(redis_url=settings.redis_url, namespace=f"{settings.namespace}-rebuilt")
    async with await StreamStore.connect(settings=other) as target:
        with pytest.raises(Gap):
            await rebuild(written, target)


async def test_a_log_whose_payload_is_gone_is_not_replayed(written: StreamStore) -> None:
    """The error names the event and the payload."""
    await written.connection.execute("DEL", written.functions(0).keys.payload("body:r1:1"))
    with pytest.raises(Gap, match="'body:r1:1' is gone"):
        [one async for one in read_history(written, 0)]


async def test_a_log_whose_span_is_gone_is_not_replayed(written: StreamStore) -> None:
    """A span that its event promises and the store lacks is named."""
    attempt = await written.get_latest_attempt("r0")
    assert attempt is not None
    await written.connection.execute("HDEL", written.functions(0).keys.spans("r0", attempt.attempt_id), "s1")
    with pytest.raises(Gap, match="'s1' is gone"):
        [one async for one in read_history(written, 0)]


async def test_a_log_with_an_unknown_event_is_not_replayed(written: StreamStore, settings: Settings) -> None:
    """The server refuses the event, and so does the fold in Python; what came before is there."""
    await write_unknown(written)
    other = load_settings(redis_url=settings.redis_url, namespace=f"{settings.namespace}-rebuilt")
    async with await StreamStore.connect(settings=other) as target:
        with pytest.raises(Upgrade, match="weather"):
            await rebuild(written, target)
        assert (await target.query_rollouts()).total == 2
    events = [event async for event, _ in read_history(written, 0)]
    state = State()
    with pytest.raises(Upgrade, match="weather"):
        fold(events, state)
    assert state.n == len(events) - 1


async def test_the_server_refuses_to_replay_over_a_gap(written: StreamStore, settings: Settings) -> None:
    """Whoever leaves an event out is told, and nothing after it is written."""
    history = [one async for one in read_history(written, 0)]
    batch = [(event.id, event.flat(), [part for pair in found.items() for part in pair]) for event, found in history]
    other = load_settings(redis_url=settings.redis_url, namespace=f"{settings.namespace}-rebuilt")
    async with await StreamStore.connect(settings=other) as target:
        with pytest.raises(Gap):
            await target.functions(0).replay([batch[0], *batch[2:]])
        assert [event.n async for event, _ in read_history(target, 0)] == [1]


async def test_a_rebuild_wants_an_empty_namespace(written: StreamStore) -> None:
    """A target that has events is refused before anything is written."""
    with pytest.raises(NamespaceError, match=r"has 7 events .* give it an empty namespace"):
        await rebuild(written, written)


async def test_a_rebuild_wants_as_many_shards(written: StreamStore, settings: Settings) -> None:
    """A target with another shard count is refused, and the error says what to set."""
    other = load_settings(redis_url=settings.redis_url, namespace=f"{settings.namespace}-rebuilt", shards=2)
    async with await StreamStore.connect(settings=other) as target:
        with pytest.raises(WrongShardCount, match="AGL_SHARDS=1"):
            await rebuild(written, target)
