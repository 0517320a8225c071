"""The check for leaks finds each kind of leak, and stays silent about a store that was used and closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.leaks import all_keys, foreign_keys, left_in_groups
from tests.support.raw import Raw

if TYPE_CHECKING:
    from agl_streams.store import StreamStore

TASKS = "agl:{t.0}:tasks"


def test_a_foreign_key_is_found() -> None:
    """A key that is in no row of the key table is reported, and the others are not."""
    lines = foreign_keys({b"agl:{t.0}:tasks", b"agl:{t.0}:nonsense", b"stray"})
    assert [line for line in lines if "nonsense" in line or "stray" in line] == lines
    assert len(lines) == 2


@pytest.mark.leaves_pending  # what the test is about
def test_a_consumer_and_a_pending_entry_are_found(redis_url: str) -> None:
    """A group with a pending entry and a consumer that was not retired are two lines."""
    with Raw(redis_url) as raw:
        raw.execute("XGROUP", "CREATE", TASKS, "runners", "0", "MKSTREAM")
        assert left_in_groups(raw, all_keys(raw)) == []
        raw.execute("XADD", TASKS, "*", "n", 1)
        raw.execute("XREADGROUP", "GROUP", "runners", "me", "STREAMS", TASKS, ">")
        pending, consumer = left_in_groups(raw, {TASKS.encode()})
    assert "1 pending entries" in pending
    assert "b'me' is left" in consumer


async def test_a_store_leaves_nothing(store: StreamStore) -> None:
    """A store that enqueued, ran and finished a rollout passes the check that ends this test."""
    await store.enqueue_rollout({"task": 1})
    attempted = await store.dequeue_rollout(worker_id="w")
    assert attempted is not None
    attempt = attempted.attempt
    await store.update_attempt(attempt.rollout_id, attempt.attempt_id, status="succeeded")
    await store.settle()
