"""Reports on rollouts and attempts: what is replaced, what follows from it, what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest
from agentlightning import LightningStoreClient
from agentlightning.types import RolloutConfig

from tests.conformance.compare import Both, Notes

NOTHING = cast("Any", None)
"""For parameters that no null may be given to; the client sends it all the same."""


async def test_only_the_given_fields_of_a_rollout_are_replaced(both: Both) -> None:
    """An absent field stays, null is stored where it may be, and refused for status and config."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        made = await client.enqueue_rollout(
            {"x": 1}, mode="train", resources_id="r", config=RolloutConfig(max_attempts=2), metadata={"m": 1}
        )
        rollout_id = made.rollout_id
        await note("nothing", client.update_rollout(rollout_id))
        await note("input", client.update_rollout(rollout_id, input=[1]))
        await note("mode", client.update_rollout(rollout_id, mode="val"))
        await note("resources", client.update_rollout(rollout_id, resources_id="s"))
        await note("config", client.update_rollout(rollout_id, config=RolloutConfig(timeout_seconds=5)))
        await note("metadata", client.update_rollout(rollout_id, metadata={}))
        await note("input null", client.update_rollout(rollout_id, input=None))
        await note("mode null", client.update_rollout(rollout_id, mode=None))
        await note("resources null", client.update_rollout(rollout_id, resources_id=None))
        await note("metadata null", client.update_rollout(rollout_id, metadata=None))
        await note("status null", client.update_rollout(rollout_id, status=NOTHING))
        await note("all", client.update_rollout(rollout_id, 7, "test", "t", "running", RolloutConfig(), {"k": None}))
        await note("read back", client.get_rollout_by_id(rollout_id))
        await note("bad mode", client.update_rollout(rollout_id, mode=cast("Any", "fast")))
        await note("bad status", client.update_rollout(rollout_id, status=cast("Any", "done")))
        await note("unknown", client.update_rollout("ro-unknown", status="failed"))
        await note("unknown, nothing", client.update_rollout("ro-unknown"))

    await both.same(scenario)


@pytest.mark.parametrize("status", ["queuing", "preparing", "running", "failed", "succeeded", "cancelled", "requeuing"])
async def test_a_rollout_is_given_a_status(both: Both, status: Any) -> None:
    """Each status can be set on a queued and on a running rollout; the end is timed, and the queue is right."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        queued = await client.enqueue_rollout("queued")
        await note("queued", client.update_rollout(queued.rollout_id, status=status))
        await note("from the queue", client.dequeue_many_rollouts(limit=5))
        started = await client.start_rollout("running", worker_id="w")
        await note("running", client.update_rollout(started.rollout_id, status=status))
        await note("read back", client.get_rollout_by_id(started.rollout_id))
        await note("worker", client.get_worker_by_id("w"))
        await note("from the queue, then", client.dequeue_many_rollouts(limit=5))
        await note("again", client.update_rollout(started.rollout_id, status=status))
        await note("from the queue, in the end", client.dequeue_many_rollouts(limit=5))

    await both.same(scenario)


async def test_only_the_given_fields_of_an_attempt_are_replaced(both: Both) -> None:
    """An absent field stays, empty values are stored, and null is refused."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        started = await client.start_rollout(1, worker_id="w")
        ids = started.rollout_id, started.attempt.attempt_id
        await note("nothing", client.update_attempt(*ids))
        await note("worker", client.update_attempt(*ids, worker_id="v"))
        await note("worker empty", client.update_attempt(*ids, worker_id=""))
        await note("heartbeat", client.update_attempt(*ids, last_heartbeat_time=12.5))
        await note("heartbeat int", client.update_attempt(*ids, last_heartbeat_time=13))
        await note("metadata", client.update_attempt(*ids, metadata={"a": [None]}))
        await note("metadata empty", client.update_attempt(*ids, metadata={}))
        for name in ("status", "worker_id", "last_heartbeat_time", "metadata"):
            await note(f"{name} null", client.update_attempt(*ids, **{name: NOTHING}))
        await note("bad status", client.update_attempt(*ids, status=cast("Any", "cancelled")))
        await note("latest", client.update_attempt(started.rollout_id, "latest", "running", "x", 14.0, {"all": 1}))
        await note("read back", client.get_latest_attempt(started.rollout_id))
        await note("unknown attempt", client.update_attempt(started.rollout_id, "at-unknown", status="running"))
        await note("unknown rollout", client.update_attempt("ro-unknown", "at-unknown", status="running"))
        await note("latest of unknown", client.update_attempt("ro-unknown", "latest", status="running"))
        queued = await client.enqueue_rollout(2)
        await note("latest of none", client.update_attempt(queued.rollout_id, "latest", status="running"))

    await both.same(scenario)


@pytest.mark.parametrize("status", ["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"])
async def test_a_rollout_follows_its_newest_attempt(both: Both, status: Any) -> None:
    """A report on the newest attempt moves its rollout and its worker; one on an older attempt moves neither."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        started = await client.start_rollout(1, worker_id="w")
        first = started.attempt.attempt_id
        await note("first", client.update_attempt(started.rollout_id, first, status=status))
        await note("rollout", client.get_rollout_by_id(started.rollout_id))
        await note("worker", client.get_worker_by_id("w"))
        second = await client.start_attempt(started.rollout_id, worker_id="v")
        await note("older", client.update_attempt(started.rollout_id, first, status=status))
        await note("rollout stays", client.get_rollout_by_id(started.rollout_id))
        await note("worker stays", client.get_worker_by_id("v"))
        await note("second", client.update_attempt(started.rollout_id, second.attempt.attempt_id, status=status))
        await note("attempts", client.query_attempts(started.rollout_id))
        await note("workers", client.query_workers(sort_by="worker_id"))

    await both.same(scenario)


@pytest.mark.parametrize("status", ["failed", "timeout", "unresponsive"])
async def test_an_attempt_is_retried_as_the_rules_say(both: Both, status: Any) -> None:
    """A rollout is queued again while its rules list the status and allow another attempt, and then fails."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        config = RolloutConfig(max_attempts=2, retry_condition=[status])
        await client.enqueue_rollout("listed", config=config)
        await client.enqueue_rollout("behind it")
        first = await client.dequeue_rollout(worker_id="w")
        assert first
        await note("report", client.update_attempt(first.rollout_id, first.attempt.attempt_id, status=status))
        await note("queued again", client.get_rollout_by_id(first.rollout_id))
        await note("next", client.dequeue_rollout(worker_id="w"))
        await note("retry", client.dequeue_rollout(worker_id="v"))
        await note("last report", client.update_attempt(first.rollout_id, "latest", status=status))
        await note("over", client.get_rollout_by_id(first.rollout_id))
        await note("queue", client.dequeue_rollout())
        other = await client.start_rollout("other", config=RolloutConfig(max_attempts=5, retry_condition=["failed"]))
        await note("not always listed", client.update_attempt(other.rollout_id, "latest", status=status))
        await note("other", client.get_rollout_by_id(other.rollout_id))

    await both.same(scenario)


async def test_a_retry_is_called_off_when_its_attempt_succeeds(both: Both) -> None:
    """A rollout that waits to be retried has succeeded as soon as its newest attempt says so."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        config = RolloutConfig(max_attempts=3, retry_condition=["unresponsive"])
        started = await client.start_rollout(1, config=config, worker_id="w")
        await client.update_attempt(started.rollout_id, "latest", status="unresponsive")
        await note("waits", client.get_rollout_by_id(started.rollout_id))
        await note("succeeds", client.update_attempt(started.rollout_id, "latest", status="succeeded"))
        await note("is over", client.get_rollout_by_id(started.rollout_id))
        await note("queue", client.dequeue_rollout())

    await both.same(scenario)


async def test_a_late_report_finds_the_rollout_finished(both: Both) -> None:
    """A report on the newest attempt of a finished rollout is kept with the attempt."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        started = await client.start_rollout(1, worker_id="w")
        await client.update_attempt(started.rollout_id, "latest", status="failed")
        await note("late", client.update_attempt(started.rollout_id, "latest", status="succeeded"))
        await note("rollout", client.get_rollout_by_id(started.rollout_id))
        cancelled = await client.start_rollout(2)
        await client.update_rollout(cancelled.rollout_id, status="cancelled")
        await note("late 2", client.update_attempt(cancelled.rollout_id, "latest", status="succeeded"))
        await note("cancelled", client.get_rollout_by_id(cancelled.rollout_id))

    await both.same(scenario)
