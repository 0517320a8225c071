"""The check of invariants finds each kind of damage and names the rollout; it is silent about sound work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from agl_streams.store import StreamStore
from tests.support.invariants import check_invariants

WORKER = "w"


async def done(store: StreamStore) -> str:
    """A rollout that was enqueued, run and reported, and folded; its id."""
    rollout_id = (await store.enqueue_rollout({"task": 1})).rollout_id
    attempted = await store.dequeue_rollout(WORKER, lease_seconds=600)
    assert attempted is not None
    await store.update_attempt(rollout_id, attempted.attempt.attempt_id, "succeeded")
    await store.settle()
    return rollout_id


async def finish_again(store: StreamStore, rollout_id: str) -> None:
    """A second entry among the finished."""
    await store.connection.execute("XADD", store.functions(0).keys.finished, "*", "rollout", rollout_id)


async def reopen(store: StreamStore, rollout_id: str) -> None:
    """An attempt that nobody works on."""
    await store.start_attempt(rollout_id, lease_seconds=600)


async def lose_an_event(store: StreamStore, rollout_id: str) -> None:
    """A gap in the log."""
    log = store.functions(0).keys.log
    entries = cast("Any", await store.connection.execute("XRANGE", log, "-", "+"))
    await store.connection.execute("XDEL", log, entries[1][0])


async def change_a_projection(store: StreamStore, rollout_id: str) -> None:
    """A status that no event gave."""
    await store.connection.execute("HSET", store.functions(0).keys.payload(f"rollout:{rollout_id}"), "status", "failed")


async def leave_a_deadline(store: StreamStore, rollout_id: str) -> None:
    """A watchdog that looks at something that has ended."""
    await store.connection.execute("ZADD", store.functions(0).keys.payload("live:deadlines"), 1, f"{rollout_id}:at-1")


async def leave_a_lease(store: StreamStore, rollout_id: str) -> None:
    """A lease of something that has ended."""
    await store.connection.execute("HSET", store.functions(0).keys.payload("live:leases"), f"{rollout_id}:at-1", 1)


async def queue_again(store: StreamStore, rollout_id: str) -> None:
    """An entry of the queue that no event put there."""
    await store.connection.execute("XADD", store.functions(0).keys.tasks, "*", "rollout", rollout_id)


Damage = Callable[[StreamStore, str], Awaitable[None]]
DAMAGES: list[tuple[Damage, str]] = [
    (finish_again, "rollout {id} finished 2 times instead of 1"),
    (reopen, "rollout {id} is 'preparing', not finished: it is lost"),
    (reopen, "is left 'preparing'"),
    (lose_an_event, "has number 3, and 2 was to come"),
    (change_a_projection, "rollout {id} 0:rollout:{id}[status]: 'failed' != 'succeeded'"),
    (leave_a_deadline, "rollout {id} its attempt at-1 still has a deadline"),
    (leave_a_lease, "rollout {id} its attempt at-1 still has a lease"),
    (queue_again, "rollout {id} is still on the queue"),
]


async def test_sound_work_passes(store: StreamStore) -> None:
    """A rollout that came to its end in the usual way breaks no rule, and its copy is removed again."""
    rollout_id = await done(store)
    await check_invariants(store, [rollout_id])
    await check_invariants(store, [rollout_id], spans=0)


@pytest.mark.parametrize(("damage", "complaint"), DAMAGES)
async def test_damage_is_found(store: StreamStore, damage: Damage, complaint: str) -> None:
    """Each kind of damage is told, with the rollout and its events where it is about one."""
    rollout_id = await done(store)
    await damage(store, rollout_id)
    with pytest.raises(AssertionError) as failure:
        await check_invariants(store, [rollout_id])
    assert complaint.format(id=rollout_id) in str(failure.value)
    if "{id}" in complaint:
        assert f"events of {rollout_id}:\n" in str(failure.value)
        assert "rollout_enqueued" in str(failure.value)


async def test_a_lost_rollout_is_found(store: StreamStore) -> None:
    """A rollout that was enqueued and of which the namespace knows nothing is lost."""
    with pytest.raises(AssertionError, match="rollout ro-lost is None, not finished: it is lost"):
        await check_invariants(store, ["ro-lost"])


async def test_a_result_without_its_spans_is_found(store: StreamStore) -> None:
    """A rollout that succeeded with fewer spans than its attempt has emitted is reported."""
    rollout_id = await done(store)
    with pytest.raises(AssertionError, match=f"rollout {rollout_id} has 0 spans in at-.* instead of 3"):
        await check_invariants(store, [rollout_id], spans=3)


async def test_a_foreign_key_is_found(store: StreamStore) -> None:
    """A key that the key table does not know is reported."""
    key = store.functions(0).keys.payload("nonsense")
    await store.connection.execute("SET", key, "1")
    with pytest.raises(AssertionError, match="nonsense"):
        await check_invariants(store, [])
    await store.connection.execute("DEL", key)
