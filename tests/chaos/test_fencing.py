"""A runner that sleeps past its lease (a laptop lid, a paused container) wakes up as the owner of nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from agl_streams.errors import Superseded
from agl_streams.keys import ShardKeys
from agl_streams.models import Attempt
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from agl_streams.values import new_attempt_id
from tests.chaos.agents import has_begun
from tests.support.chaos_processes import Crew, Member
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.waiting import until


async def attempts_of(store: StreamStore, rollout_id: str) -> list[Attempt]:
    """All attempts of a rollout, oldest first."""
    return list(await store.query_attempts(rollout_id))


async def status_of(store: StreamStore, rollout_id: str) -> str | None:
    """The status of a rollout."""
    rollout = await store.get_rollout_by_id(rollout_id)
    return rollout.status if rollout else None


def spoke_last(sleeper: Member) -> bool:
    """Whether a runner that woke up is through with the attempt it held."""
    return "attempt_given_up" in sleeper.output or "attempt_finished" in sleeper.output


async def test_a_runner_that_slept_past_its_lease_changes_nothing(
    store: StreamStore, crew: Crew, tmp_path: Path
) -> None:
    """SIGSTOP past the lease, a second attempt by another runner, SIGCONT: the second result is the only one."""
    crew.aggregator()
    sleeper = crew.runner("wait_for_file", concurrency=1)
    rollout_id = (await store.enqueue_rollout({"directory": str(tmp_path)})).rollout_id
    await until(lambda: has_begun(tmp_path, rollout_id, 1), what="the first attempt")
    sleeper.pause()
    crew.runner("wait_for_file", concurrency=1)
    await until(lambda: has_begun(tmp_path, rollout_id, 2), what="the second attempt")
    first, _ = await attempts_of(store, rollout_id)
    with pytest.raises(Superseded):
        await store.admit_call(rollout_id, first.attempt_id)
    (tmp_path / "go").touch()
    await wait_until_done(store, [rollout_id])
    finished = await store.get_rollout_by_id(rollout_id)

    sleeper.resume()
    await until(lambda: spoke_last(sleeper), what="the sleeper to end its attempt")
    await wait_until_done(store, [rollout_id])

    assert await store.get_rollout_by_id(rollout_id) == finished
    assert [one.worker_id for one in await attempts_of(store, rollout_id)] == ["runner-1", "runner-2"]
    await check_invariants(store, [rollout_id])


async def test_a_sleeper_whose_rollout_nobody_took_goes_on(store: StreamStore, crew: Crew, tmp_path: Path) -> None:
    """SIGSTOP past the lease with nobody to take the rollout over, SIGCONT: the attempt is revived, and runs once."""
    crew.aggregator()
    sleeper = crew.runner("wait_for_file", concurrency=1)
    rollout_id = (await store.enqueue_rollout({"directory": str(tmp_path)})).rollout_id
    await until(lambda: has_begun(tmp_path, rollout_id, 1), what="the attempt")
    sleeper.pause()

    async def has_status(status: str) -> bool:
        return await status_of(store, rollout_id) == status

    await until(lambda: has_status("requeuing"), what="a lost lease")
    sleeper.resume()
    await until(lambda: has_status("running"), what="a revived attempt")
    (tmp_path / "go").touch()
    await wait_until_done(store, [rollout_id])

    (attempt,) = await attempts_of(store, rollout_id)
    assert (attempt.status, attempt.metadata) == ("succeeded", None)
    await check_invariants(store, [rollout_id])


async def test_an_entry_that_was_given_to_another_cannot_be_begun(store: StreamStore, crew: Crew) -> None:
    """A reader stopped between being handed an entry and beginning it finds the entry void once it goes on."""
    functions = store.functions(0)
    rollout_id = (await store.enqueue_rollout({"ms": 1})).rollout_id
    entry = await read_one(store, "sleeper", functions.keys)
    crew.aggregator()
    crew.runner("some_work")
    await wait_until_done(store, [rollout_id])
    finished = await store.get_rollout_by_id(rollout_id)

    assert await functions.begin([(entry, rollout_id, new_attempt_id())], "sleeper", "1000000") == [None]

    assert await store.get_rollout_by_id(rollout_id) == finished
    (attempt,) = await attempts_of(store, rollout_id)
    assert REASON not in (attempt.metadata or {})
    await check_invariants(store, [rollout_id])


async def read_one(store: StreamStore, consumer: str, keys: ShardKeys) -> str:
    """The entry that a reader is handed."""
    reader = store.connection.reader()
    reply = await reader.read(
        "XREADGROUP", "GROUP", "runners", consumer, "COUNT", 1, "BLOCK", 1000, "STREAMS", keys.tasks, ">", block_ms=1000
    )
    await reader.close()
    return cast("Any", reply)[0][1][0][0].decode()
