"""Waiting for rollouts to finish, and what happens to attempts that nobody reports on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agentlightning import LightningStoreClient
from agentlightning.types import AttemptStatus, RolloutConfig

from tests.conformance.compare import Both, Notes
from tests.support.waiting import until

SOON_S = 0.2  # both servers look for overdue attempts several times within the patience of a wait


async def test_finished_rollouts_are_waited_for(both: Both) -> None:
    """A wait gives the rollouts that are finished, in the order asked, without unknown and unfinished ones."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        ids: list[str] = []
        for number in range(4):
            ids.append((await client.start_rollout(number)).rollout_id)
        await note("nothing yet", client.wait_for_rollouts(rollout_ids=ids, timeout=0))
        await note("nothing within a moment", client.wait_for_rollouts(rollout_ids=ids[:1], timeout=0.05))
        await client.update_attempt(ids[0], "latest", status="failed")
        await client.update_rollout(ids[1], status="cancelled")
        await client.update_attempt(ids[2], "latest", status="succeeded")
        await note("three", client.wait_for_rollouts(rollout_ids=ids, timeout=0))
        await note("in their order", client.wait_for_rollouts(rollout_ids=[ids[2], ids[0]], timeout=0.05))
        await note("twice", client.wait_for_rollouts(rollout_ids=[ids[2], ids[2]], timeout=0))
        await note("unknown", client.wait_for_rollouts(rollout_ids=["ro-unknown", ids[1]], timeout=0.05))
        await note("only unknown", client.wait_for_rollouts(rollout_ids=["ro-unknown"], timeout=None))
        await note("negative", client.wait_for_rollouts(rollout_ids=ids, timeout=-1))
        await note("none", client.wait_for_rollouts(rollout_ids=[], timeout=0))
        await note("too long for the client", client.wait_for_rollouts(rollout_ids=ids, timeout=0.2))

    await both.same(scenario)


async def test_a_wait_without_end_lasts_until_the_last_is_finished(both: Both) -> None:
    """A wait without a time-out returns when the last of its rollouts finishes."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        ids = [(await client.start_rollout(number)).rollout_id for number in range(2)]
        waiting = asyncio.create_task(client.wait_for_rollouts(rollout_ids=ids))
        await client.update_attempt(ids[0], "latest", status="succeeded")
        note.value("still waiting", waiting.done())
        await client.update_attempt(ids[1], "latest", status="succeeded")
        await note("both", waiting)

    await both.same(scenario)


@pytest.mark.parametrize(
    ("config", "becomes"),
    [
        (RolloutConfig(timeout_seconds=SOON_S), "timeout"),
        (RolloutConfig(unresponsive_seconds=SOON_S), "unresponsive"),
        (RolloutConfig(timeout_seconds=SOON_S, unresponsive_seconds=SOON_S), "timeout"),
    ],
    ids=["timeout", "unresponsive", "both"],
)
async def test_an_overdue_attempt_ends(both: Both, config: RolloutConfig, becomes: AttemptStatus) -> None:
    """An attempt past its time, or silent for too long, ends by itself; its rollout fails, its worker is unknown."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        started = await client.start_rollout(1, config=config, worker_id="w")
        await ended(client, started.rollout_id, becomes)
        await note("rollout", client.get_rollout_by_id(started.rollout_id))
        await note("attempts", client.query_attempts(started.rollout_id))
        await note("worker", client.get_worker_by_id("w"))
        await note("queue", client.dequeue_rollout())

    await both.same(scenario)


async def test_an_overdue_attempt_is_retried(both: Both) -> None:
    """A rollout whose attempt timed out is queued again when its rules say so."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        config = RolloutConfig(timeout_seconds=SOON_S, max_attempts=2, retry_condition=["timeout"])
        started = await client.start_rollout(1, config=config)
        await ended(client, started.rollout_id, "timeout")
        await note("queued again", client.get_rollout_by_id(started.rollout_id))
        retry = await client.dequeue_rollout(worker_id="w")
        note.value("second", retry and (retry.rollout_id == started.rollout_id, retry.attempt.sequence_id))
        await client.update_attempt(started.rollout_id, "latest", status="succeeded")
        await note("in time", client.get_rollout_by_id(started.rollout_id))

    await both.same(scenario)


async def ended(client: LightningStoreClient, rollout_id: str, status: AttemptStatus) -> None:
    """Wait until the newest attempt has a status."""

    async def has_it() -> Any:
        await client.query_rollouts(limit=1)  # their server looks for overdue attempts when it is asked something
        attempt = await client.get_latest_attempt(rollout_id)
        return attempt and attempt.status == status

    await until(has_it, what=f"attempt to be {status}")
