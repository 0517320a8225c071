"""What passes through leaves nothing behind: not on the queue, not in a reader's hands, not in this process."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any, cast

import pytest

from agl_streams.keys import parse
from agl_streams.store import StreamStore
from tests.support.leaks import all_keys
from tests.support.raw import Raw
from tests.support.spans import reward

MIB = 1024 * 1024
SMALL_ENTRY = 8192  # bytes of a queue of one entry: the server gives a stream 4 KiB to begin with
ROUNDS = 30
EACH = 10
FEW_OBJECTS = 100  # a leak of one object for each rollout would make three times as many


async def number(store: StreamStore, *command: str | int) -> int:
    """The answer of a command that counts."""
    return cast("int", await store.connection.execute(*command))


async def live_through(store: StreamStore, count: int) -> None:
    """So many rollouts, from enqueue to success, with all that a runner and a waiter do."""
    ids = [(await store.enqueue_rollout({"number": n})).rollout_id for n in range(count)]
    for taken in await store.dequeue_many_rollouts(limit=count, worker_id="w", lease_seconds=30.0):
        attempt_id = taken.attempt.attempt_id
        await store.renew_attempt(taken.rollout_id, attempt_id)
        await store.add_span(reward(0, 1.0, rollout_id=taken.rollout_id, attempt_id=attempt_id), assign_sequence=True)
        await store.update_attempt(taken.rollout_id, attempt_id, "succeeded")
    await store.wait_for_rollouts(rollout_ids=ids, timeout=20)
    await store.query_spans(ids[0])
    await store.settle()


async def test_what_was_begun_is_off_the_queue(store: StreamStore) -> None:
    """Acknowledged and deleted in one: the queue's length is that of what waits, however much has passed."""
    tasks = store.functions(0).keys.tasks
    for _ in range(5):
        await live_through(store, 50)
        assert await number(store, "XLEN", tasks) == 0
    for waiting in range(1, 4):
        await store.enqueue_rollout("waits")
        assert await number(store, "XLEN", tasks) == waiting
    pending = await store.connection.execute("XPENDING", tasks, "runners")
    assert cast("list[Any]", pending)[0] == 0


async def test_an_entry_of_the_queue_is_small_whatever_its_input(store: StreamStore) -> None:
    """It names the rollout; the input lies beside it, and is not copied when it goes back."""
    rollout = await store.enqueue_rollout("x" * MIB)
    tasks = store.functions(0).keys.tasks
    ((_, fields),) = cast("list[Any]", await store.connection.execute("XRANGE", tasks, "-", "+"))
    assert fields == [b"rollout", rollout.rollout_id.encode()]
    assert await number(store, "MEMORY", "USAGE", tasks) < SMALL_ENTRY


async def test_signs_of_life_are_no_deliveries(store: StreamStore) -> None:
    """Renewals, spans and heartbeats leave the count of deliveries alone, so it tells poison from long work."""
    await store.enqueue_rollout("long", rollout_id="r")
    taken = await store.dequeue_rollout("w", lease_seconds=30.0)
    assert taken is not None
    attempt_id = taken.attempt.attempt_id
    for _ in range(20):
        await store.renew_attempt("r", attempt_id)
        await store.update_worker("w")
        await store.add_span(reward(0, 1.0, rollout_id="r", attempt_id=attempt_id), assign_sequence=True)
    row = store.functions(0).keys.payload("rollout:r")
    assert await store.connection.execute("HGET", row, "deliveries") == b"1"


async def test_another_group_on_the_log_misses_nothing(store: StreamStore) -> None:
    """What the aggregator has folded is there for whoever reads the log beside it."""
    log = store.functions(0).keys.log
    await store.connection.execute("XGROUP", "CREATE", log, "mine", "0")
    await live_through(store, 20)
    reply = await store.connection.execute(
        "XREADGROUP", "GROUP", "mine", "me", "COUNT", 10_000, "NOACK", "STREAMS", log, ">"
    )
    seen = len(cast("Any", reply)[0][1])
    assert seen == await number(store, "XLEN", log)
    assert await store.connection.execute("HGET", store.functions(0).keys.meta, "n") == str(seen).encode()
    await store.connection.execute("XGROUP", "DESTROY", log, "mine")


async def test_a_finished_rollout_has_the_keys_of_the_key_table_and_no_others(
    store: StreamStore, redis_url: str
) -> None:
    """Its projections and payloads; of its lease and deadline nothing, and the marks of its requests go in time."""
    await live_through(store, EACH)
    with Raw(redis_url) as raw:
        mine = {key: parse(key) for key in all_keys(raw) if parse(key).namespace == store.settings.namespace}
        kinds = Counter(parsed.kind.name for parsed in mine.values() if "<" in parsed.kind.name)
        marks = ("live:request:<token>", "live:claim:<attempt>")
        assert {kind: count for kind, count in kinds.items() if kind not in (*marks, "index:status:<status>")} == {
            "rollout:<rollout>": EACH,
            "attempt:<rollout>:<attempt>": EACH,
            "body:<rollout>:<version>": EACH,
            "spans:<rollout>:<attempt>": EACH,
            "worker:<worker>": 1,
            "live:worker:<worker>": 1,
        }
        for key, parsed in mine.items():
            assert parsed.kind.name not in marks or raw.execute("TTL", key) > 0
        prefix = store.functions(0).keys.prefix
        assert raw.execute("EXISTS", f"{prefix}live:deadlines", f"{prefix}live:leases") == 0


@pytest.mark.parametrize("what", ["rollouts", "waiters that give up"])
async def test_a_store_keeps_nothing_of_what_has_passed(store: StreamStore, what: str) -> None:
    """No map in this process grows with the rollouts or the waiters that it has seen."""

    async def one_round() -> None:
        if what == "rollouts":
            await live_through(store, EACH)
        else:
            await store.enqueue_rollout("never done", rollout_id="open")
            for _ in range(EACH):
                await store.wait_for_rollouts(rollout_ids=["open"], timeout=0.001)

    async def objects() -> int:
        await one_round()
        gc.collect()
        return len(gc.get_objects())

    await objects()
    before = await objects()
    for _ in range(ROUNDS):
        await one_round()
    assert await objects() - before < FEW_OBJECTS
