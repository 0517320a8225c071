"""Queries for rollouts and attempts: filters, order, pages."""

from __future__ import annotations

from typing import Any, cast

import pytest
from agentlightning import LightningStoreClient
from agentlightning.types import AttemptedRollout, RolloutConfig

from tests.conformance.compare import Both, Notes

ROLLOUT_ORDERS = ["start_time", "end_time", "mode", "resources_id", "status"]
ATTEMPT_ORDERS = ["sequence_id", "start_time", "end_time", "status", "worker_id", "last_heartbeat_time"]
PAGES = [(-1, 0), (2, 0), (2, 1), (1, 3), (3, 4), (100, 0), (-1, 2), (5, 100)]
BAD_PAGES = [(0, 0), (-2, 0), (5, -1), (-1, -7)]


async def five(client: LightningStoreClient) -> list[str]:
    """Five rollouts: queued, preparing, running, succeeded and failed, made in that order."""
    queued = await client.enqueue_rollout("queued", mode="train")
    preparing = await client.start_rollout("preparing", mode="val", resources_id="b")
    running = await client.start_rollout("running", resources_id="a", worker_id="w")
    await client.update_attempt(running.rollout_id, "latest", status="running")
    succeeded = await client.start_rollout("succeeded", mode="test", resources_id="c", metadata={"k": 1})
    await client.update_attempt(succeeded.rollout_id, "latest", status="succeeded")
    failed = await client.start_rollout("failed", mode="train", config=RolloutConfig(max_attempts=4))
    await client.start_attempt(failed.rollout_id)
    await client.update_attempt(failed.rollout_id, "latest", status="failed")
    return [one.rollout_id for one in (queued, preparing, running, succeeded, failed)]


async def test_rollouts_are_found_by_status_and_id(both: Both) -> None:
    """Filters narrow alone and together, an empty list finds nothing, and old parameter names still work."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("nothing there", client.query_rollouts())
        ids = await five(client)
        await note("all", client.query_rollouts())
        await note("one status", client.query_rollouts(status_in=["running"]))
        await note("two statuses", client.query_rollouts(status_in=["failed", "queuing"]))
        await note("a status of none", client.query_rollouts(status_in=["cancelled"]))
        await note("no status", client.query_rollouts(status_in=[]))
        await note("ids", client.query_rollouts(rollout_id_in=[ids[4], ids[1], ids[1], "ro-unknown"]))
        await note("no ids", client.query_rollouts(rollout_id_in=[]))
        await note("contains all", client.query_rollouts(rollout_id_contains="ro-"))
        await note("contains one", client.query_rollouts(rollout_id_contains=ids[2][3:]))
        await note("contains upper case", client.query_rollouts(rollout_id_contains="RO-"))
        await note("contains none", client.query_rollouts(rollout_id_contains="xyz"))
        await note("and", client.query_rollouts(status_in=["running"], rollout_id_in=[ids[0], ids[2]]))
        await note("and none", client.query_rollouts(status_in=["running"], rollout_id_in=[ids[0]]))
        await note("or", client.query_rollouts(status_in=["running"], rollout_id_contains=ids[0], filter_logic="or"))
        await note(
            "or all three",
            client.query_rollouts(
                status_in=["failed"], rollout_id_in=[ids[1]], rollout_id_contains=ids[0], filter_logic="or"
            ),
        )
        await note("old names", client.query_rollouts(status=["running"], rollout_ids=[ids[2]]))
        await note("bad status", client.query_rollouts(status_in=[cast("Any", "done")]))
        await note("bad logic", client.query_rollouts(filter_logic=cast("Any", "xor")))

    await both.same(scenario)


async def test_an_or_of_nothing_is_no_filter(both: Both) -> None:
    """Without a filter the logic that would join filters makes no difference."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await five(client)
        await note("or", client.query_rollouts(filter_logic="or"))

    await both.same(scenario)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_rollouts_are_sorted(both: Both, order: Any) -> None:
    """Rollouts come in the order of a field, unfinished ones as if they ended last; ids in the order of text."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await five(client)
        for name in ROLLOUT_ORDERS:
            found = await client.query_rollouts(sort_by=name, sort_order=order)
            # Rollouts with equal keys may come in any order, so the keys are compared.
            note.value(name, [getattr(one, name) for one in found])
            note.value(f"{name} sorts", sorted(one.input for one in found))
        found = await client.query_rollouts(sort_by="rollout_id", sort_order=order)
        ids = [one.rollout_id for one in found]
        note.value("rollout_id", ids == sorted(ids, reverse=order == "desc"))
        await note("in full", client.query_rollouts(sort_by="start_time", sort_order=order))
        finished = ["failed", "succeeded"]
        await note("the ended", client.query_rollouts(status_in=finished, sort_by="end_time", sort_order=order))
        await note("input", client.query_rollouts(sort_by="input", sort_order=order))
        await note("unknown field", client.query_rollouts(sort_by="reward", sort_order=order))
        await note("bad order", client.query_rollouts(sort_by="status", sort_order=cast("Any", "up")))

    await both.same(scenario)


async def test_rollouts_come_in_pages(both: Both) -> None:
    """Limit and offset cut a page out and are told with the total; impossible ones are refused."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        ids = await five(client)
        for limit, offset in PAGES:
            await note(f"{limit}, {offset}", client.query_rollouts(limit=limit, offset=offset))
            await note(
                f"{limit}, {offset} of some",
                client.query_rollouts(rollout_id_in=ids[:3], limit=limit, offset=offset, sort_by="start_time"),
            )
        for limit, offset in BAD_PAGES:
            await note(f"{limit}, {offset} is bad", client.query_rollouts(limit=limit, offset=offset))

    await both.same(scenario)


async def test_a_rollout_is_read_with_its_newest_attempt(both: Both) -> None:
    """A rollout has its newest attempt with it if it has any; an unknown one is None."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        ids = await five(client)
        for number, rollout_id in enumerate(ids):
            found = await note(f"rollout {number}", client.get_rollout_by_id(rollout_id))
            note.value(f"rollout {number} has an attempt", isinstance(found, AttemptedRollout))
            await note(f"attempt {number}", client.get_latest_attempt(rollout_id))
        await note("unknown", client.get_rollout_by_id("ro-unknown"))
        await note("attempt of unknown", client.get_latest_attempt("ro-unknown"))

    await both.same(scenario)


async def three_attempts(client: LightningStoreClient) -> str:
    """A rollout with three attempts, of which the first has ended and the second has a heartbeat."""
    started = await client.start_rollout(1, worker_id="c")
    await client.update_attempt(started.rollout_id, "latest", status="failed")
    await client.start_attempt(started.rollout_id, worker_id="a")
    await client.update_attempt(started.rollout_id, "latest", last_heartbeat_time=5.0, metadata={"n": 2})
    await client.start_attempt(started.rollout_id)
    return started.rollout_id


async def test_attempts_are_queried(both: Both) -> None:
    """Attempts come by number, or sorted and cut as asked; those of an unknown rollout are none."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        rollout_id = await three_attempts(client)
        await note("all", client.query_attempts(rollout_id))
        for name in ATTEMPT_ORDERS:
            for order in ("asc", "desc"):
                await note(f"{name} {order}", client.query_attempts(rollout_id, sort_by=name, sort_order=order))
        await note("unsorted", client.query_attempts(rollout_id, sort_by=None))
        found = await client.query_attempts(rollout_id, sort_by="attempt_id")
        note.value("attempt_id", [one.attempt_id for one in found] == sorted(one.attempt_id for one in found))
        for limit, offset in PAGES:
            await note(f"{limit}, {offset}", client.query_attempts(rollout_id, limit=limit, offset=offset))
        for limit, offset in BAD_PAGES:
            await note(f"{limit}, {offset} is bad", client.query_attempts(rollout_id, limit=limit, offset=offset))
        await note("bad field", client.query_attempts(rollout_id, sort_by="input"))
        await note("of none", client.query_attempts("ro-unknown"))
        queued = await client.enqueue_rollout(2)
        await note("of a queued one", client.query_attempts(queued.rollout_id))

    await both.same(scenario)
