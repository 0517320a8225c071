"""No function works long: each at its cap stays out of the server's slow log, and small values keep hashes compact."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agl_streams.config import Settings
from agl_streams.functions import (
    ENQUEUE_LIMIT,
    EXPIRE_LIMIT,
    FOLD_LIMIT,
    REPLAY_LIMIT,
    RETIRE_LIMIT,
    SPANS_LIMIT,
    NewSpan,
)
from agl_streams.library import LEAVE_LIMIT
from agl_streams.models import EnqueueRolloutRequest, RolloutConfig
from agl_streams.replay import read_history
from agl_streams.store import StreamStore
from agl_streams.store.work import CLAIM_LIMIT
from agl_streams.values import new_attempt_id
from tests.support.servers import ALL_BINARIES, Servers
from tests.support.spans import model_call, reward

pytestmark = pytest.mark.leaves_pending  # entries handed over and never begun are what some of the caps are about

SLOW_US = 20_000  # ten times what a function may take on an idle machine
TRIES = 5  # a machine that is busy with something else takes the server off its core now and then
LEASE_US = "30000000"
KIB = 1024
Full = Callable[[StreamStore], Awaitable[Any]]


def spans(count: int, size: int) -> list[NewSpan]:
    """Spans with their sums, of so many bytes each."""
    return [NewSpan(f"{n:016x}", "", "10000000", "11000000", "1,10,20,0,0", os.urandom(size)) for n in range(count)]


async def enqueue(store: StreamStore, count: int) -> list[str]:
    """So many rollouts of a usual kind."""
    config = RolloutConfig(timeout_seconds=10.0, max_attempts=2, retry_condition=["timeout"])
    requests = [EnqueueRolloutRequest(input={"task": "x" * 500}, config=config, mode="train")] * count
    return [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]


async def claim(store: StreamStore, count: int) -> list[tuple[str, str]]:
    """So many attempts, open."""
    found = await store.dequeue_many_rollouts(limit=count, worker_id="w", lease_seconds=30.0)
    return [(one.rollout_id, one.attempt.attempt_id) for one in found]


async def hand_over(store: StreamStore, count: int) -> list[tuple[str, str]]:
    """So many entries in the hands of a reader."""
    tasks = store.functions(0).keys.tasks
    reply = cast("Any", await store.connection.execute(
        "XREADGROUP", "GROUP", "runners", "reader", "COUNT", count, "STREAMS", tasks, ">"
    ))  # fmt: skip
    return [(entry.decode(), fields[1].decode()) for entry, fields in reply[0][1]]


async def many_small_spans(store: StreamStore) -> None:
    """As many spans as one call may bring."""
    await enqueue(store, 1)
    (attempt,) = await claim(store, 1)
    await store.functions(0).append_spans(*attempt, spans(SPANS_LIMIT, 400))


async def a_megabyte_of_spans(store: StreamStore) -> None:
    """As many bytes as one call may bring."""
    await enqueue(store, 1)
    (attempt,) = await claim(store, 1)
    await store.functions(0).append_spans(*attempt, spans(10, 100 * KIB))


async def fold_many(store: StreamStore) -> None:
    """A batch of events of as many attempts."""
    await enqueue(store, FOLD_LIMIT)
    attempts = await claim(store, FOLD_LIMIT)
    await store.settle()
    for rollout_id, attempt_id in attempts:
        await store.functions(0).append_spans(rollout_id, attempt_id, spans(1, 100))
    while (await store.fold_once(0)).events:
        pass


async def expire_many(store: StreamStore) -> None:
    """As many overdue attempts as one look ends, each queued again."""
    await enqueue(store, EXPIRE_LIMIT)
    await claim(store, EXPIRE_LIMIT)
    functions = store.functions(0)
    later = (await store.query_rollouts(limit=1))[0].start_time + 100
    functions.clock_us = lambda: round(later * 1_000_000)
    result = await functions.expire(LEASE_US, 10**9, 3)
    assert result.ended == EXPIRE_LIMIT
    assert result.more


async def redeliver_many(store: StreamStore) -> None:
    """As many entries that were never begun as one look puts back."""
    await enqueue(store, EXPIRE_LIMIT)
    await hand_over(store, EXPIRE_LIMIT)
    result = await store.functions(0).expire(LEASE_US, 0, 3)
    assert result.redelivered == EXPIRE_LIMIT


async def leave_with_many(store: StreamStore) -> None:
    """A reader that stops with its hands full."""
    await enqueue(store, LEAVE_LIMIT)
    await hand_over(store, LEAVE_LIMIT)
    assert await store.functions(0).leave("reader") == LEAVE_LIMIT


async def begin_many(store: StreamStore) -> None:
    """A reader that begins as many at once as a claim may."""
    await enqueue(store, CLAIM_LIMIT)
    entries = await hand_over(store, CLAIM_LIMIT)
    named = [(entry, rollout_id, new_attempt_id()) for entry, rollout_id in entries]
    assert all(await store.functions(0).begin(named, "reader", LEASE_US))


async def replay_many(store: StreamStore) -> None:
    """A batch of recorded events, spans among them."""
    await enqueue(store, REPLAY_LIMIT)
    for attempt in await claim(store, REPLAY_LIMIT // 2):
        await store.functions(0).append_spans(*attempt, spans(10, 400))
    history = [one async for one in read_history(store, 0)]
    batch = [(event.id, event.flat(), [part for pair in found.items() for part in pair]) for event, found in history]
    other = store.settings.model_copy(update={"namespace": "rebuilt"})
    async with await StreamStore.connect(store.url, settings=other) as target:
        await target.functions(0).replay(batch)


async def retire_many(store: StreamStore) -> None:
    """As many workers as one call forgets, among consumers of as many more."""
    for number in range(RETIRE_LIMIT):
        await store.update_worker(f"w{number}")
        await store.dequeue_rollout(f"w{number}")
    await enqueue(store, 4 * RETIRE_LIMIT)
    tasks = store.functions(0).keys.tasks
    for number in range(4 * RETIRE_LIMIT):
        await store.connection.execute("XGROUP", "CREATECONSUMER", tasks, "runners", f"w{number}")
    names = [f"w{number}" for number in range(RETIRE_LIMIT)]
    assert await store.functions(0).retire_workers(names, "0") == names


async def read_many(store: StreamStore) -> None:
    """As many rollouts as one call reads."""
    await enqueue(store, ENQUEUE_LIMIT)
    await claim(store, ENQUEUE_LIMIT)
    await store.query_rollouts()


FULL: dict[str, Full] = {
    "enqueue": lambda store: enqueue(store, ENQUEUE_LIMIT),
    "claim": lambda store: _enqueue_and_claim(store),
    "begin": begin_many,
    "append 200": many_small_spans,
    "append 1 MB": a_megabyte_of_spans,
    "fold": fold_many,
    "expire": expire_many,
    "redeliver": redeliver_many,
    "leave": leave_with_many,
    "replay": replay_many,
    "retire": retire_many,
    "read": read_many,
}


async def _enqueue_and_claim(store: StreamStore) -> None:
    await enqueue(store, CLAIM_LIMIT)
    assert len(await claim(store, CLAIM_LIMIT)) == CLAIM_LIMIT


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("binary", ALL_BINARIES)
async def test_each_function_at_its_cap_stays_out_of_the_slow_log(
    servers: Servers, settings: Settings, binary: str, name: str
) -> None:
    """The server's own measure of a full call is far below what anybody would notice, in the best of a few tries."""
    server = servers.start(binary, {"slowlog-log-slower-than": str(SLOW_US)})
    slow: list[Any] = []
    for _ in range(TRIES):
        async with await StreamStore.connect(server.url, settings=settings) as store:
            await FULL[name](store)
        logged = [entry[2:4] for entry in cast("list[Any]", server.execute("SLOWLOG", "GET", 100))]
        slow = [(usec, arguments[1]) for usec, arguments in logged if arguments[0].startswith(b"FCALL")]
        if not slow:
            return
        server.execute("FLUSHALL")
        server.execute("SLOWLOG", "RESET")
    pytest.fail(f"{name} was slow every time, at last (in microseconds): {slow}")


def encoding(store: StreamStore, name: str) -> tuple[str, ...]:
    """The arguments that ask for the encoding of a key."""
    return ("OBJECT", "ENCODING", store.functions(0).keys.payload(name))


@pytest.mark.parametrize("binary", ALL_BINARIES)
async def test_projections_of_usual_size_stay_compact(servers: Servers, settings: Settings, binary: str) -> None:
    """Hashes of rollouts, attempts and workers are listpacks with every field set, after retries and many sums."""
    server = servers.start(binary)
    async with await StreamStore.connect(server.url, settings=settings) as store:
        await store.update_resources("rs-0123456789ab", {})
        config = RolloutConfig(
            timeout_seconds=100.0,
            unresponsive_seconds=50.0,
            max_attempts=3,
            retry_condition=["failed", "timeout", "unresponsive"],
        )
        rollout = await store.enqueue_rollout("x" * 5000, "train", config=config, metadata={"k": "v" * 500})
        attempt_id = ""
        for number in range(3):
            attempted = await store.dequeue_rollout("host-0123456789.example:runner-12345", lease_seconds=30.0)
            assert attempted is not None
            attempt_id = attempted.attempt.attempt_id
            ids: dict[str, Any] = {"rollout_id": rollout.rollout_id, "attempt_id": attempt_id}
            await store.add_many_spans(
                [model_call(0, start_time=1e9, end_time=1e9 + 1, **ids), reward(0, 0.123456789, **ids)],
                assign_sequence=True,
            )
            await store.update_attempt(rollout.rollout_id, attempt_id, metadata={"number": number})
            await store.update_attempt(rollout.rollout_id, attempt_id, "failed", reason="it was wrong")
        await store.settle()
        names = [
            f"rollout:{rollout.rollout_id}",
            f"attempt:{rollout.rollout_id}:{attempt_id}",
            "worker:host-0123456789.example%3Arunner-12345",
            "resources:rs-0123456789ab",
            "meta",
        ]
        assert {name: server.execute(*encoding(store, name)) for name in names} == dict.fromkeys(names, b"listpack")
