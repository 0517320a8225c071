"""Resources with their versions, and workers with what they do."""

from __future__ import annotations

from typing import Any, cast

from agentlightning import LLM, LightningStoreClient, PromptTemplate, ProxyLLM

from tests.conformance.compare import Both, Notes

ALL_KINDS: dict[str, Any] = {
    "llm": LLM(endpoint="http://localhost:8000/v1", model="m", sampling_parameters={"temperature": 0.5, "n": 1}),
    "keyed": LLM(endpoint="http://localhost", model="m", api_key="k"),
    "proxied": ProxyLLM(endpoint="http://localhost:4750/v1/", model="m"),
    "f": PromptTemplate(template="{x} é", engine="f-string"),
    "jinja": PromptTemplate(template="{{ x }}", engine="jinja"),
    "poml": PromptTemplate(template="<p/>", engine="poml"),
}
PROMPT: dict[str, Any] = {"p": PromptTemplate(template="t", engine="jinja")}
ORDERS = ["resources_id", "create_time", "update_time", "version"]
WORKER_ORDERS = ["worker_id", "status", "last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time"]


async def test_resources_are_added_and_replaced(both: Both) -> None:
    """Resources of every kind come back as they were sent; each update raises the version and makes them the latest."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("latest of none", client.get_latest_resources())
        added = await note("added", client.add_resources(ALL_KINDS))
        await note("read", client.get_resources_by_id(added.resources_id))
        await note("latest", client.get_latest_resources())
        await note("empty", client.add_resources({}))
        await note("latest is empty", client.get_latest_resources())
        await note("named", client.update_resources("mine", PROMPT))
        await note("second version", client.update_resources("mine", ALL_KINDS))
        await note("third version", client.update_resources("mine", {}))
        await note("read mine", client.get_resources_by_id("mine"))
        await note("latest again", client.get_latest_resources())
        updated = await note("first one updated", client.update_resources(added.resources_id, PROMPT))
        note.value("kept its time", (updated.create_time == added.create_time, updated.update_time > added.update_time))
        await note("latest in the end", client.get_latest_resources())
        await note("unknown", client.get_resources_by_id("rs-unknown"))

    await both.same(scenario)


async def test_resources_are_queried(both: Both) -> None:
    """Resources are found by id and part of it, sorted and cut into pages."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("none", client.query_resources())
        for name in ("mine-b", "mine-a", "other"):
            await client.update_resources(name, PROMPT)
        await client.update_resources("mine-a", {})
        await note("all, by id", client.query_resources(sort_by="resources_id"))
        await note("one", client.query_resources(resources_id="other"))
        await note("part", client.query_resources(resources_id_contains="mine", sort_by="resources_id"))
        await note("both", client.query_resources(resources_id="other", resources_id_contains="mine"))
        await note("none such", client.query_resources(resources_id="rs-unknown"))
        for name in ORDERS:
            for order in ("asc", "desc"):
                found = await client.query_resources(sort_by=name, sort_order=cast("Any", order))
                note.value(f"{name} {order}", [getattr(one, name) for one in found])
        for limit, offset in ((1, 0), (2, 1), (-1, 2), (5, 9)):
            await note(f"{limit}, {offset}", client.query_resources(limit=limit, offset=offset, sort_by="resources_id"))
        await note("limit 0", client.query_resources(limit=0))
        await note("offset -1", client.query_resources(offset=-1))
        await note("bad field", client.query_resources(sort_by="name"))

    await both.same(scenario)


async def test_a_heartbeat_makes_a_worker(both: Both) -> None:
    """A heartbeat creates its worker and stores what it says; without anything said the statistics stay."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("unknown", client.get_worker_by_id("w"))
        await note("without statistics", client.update_worker("w"))
        await note("with", client.update_worker("w", {"cpu": 0.5, "gpu": None, "deep": {"n": [1, "x"]}}))
        await note("unchanged", client.update_worker("w"))
        await note("emptied", client.update_worker("w", {}))
        await note("null", client.update_worker("w", cast("Any", None)))
        await note("read", client.get_worker_by_id("w"))
        await note("no text", client.update_worker("w", cast("Any", "text")))

    await both.same(scenario)


async def test_a_worker_shows_what_it_does(both: Both) -> None:
    """A worker is busy with the attempt that it took last, idle when that has ended or the queue was empty."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        for number in range(2):
            await client.enqueue_rollout(number)
        first = await client.dequeue_rollout(worker_id="w")
        assert first
        await note("busy", client.get_worker_by_id("w"))
        await client.update_worker("w", {"load": 1})
        await note("busy with a heartbeat", client.get_worker_by_id("w"))
        await client.update_attempt(first.rollout_id, "latest", status="succeeded")
        await note("idle", client.get_worker_by_id("w"))
        second = await client.dequeue_rollout(worker_id="w")
        assert second
        await client.update_attempt(second.rollout_id, "latest", status="timeout")
        await note("unknown", client.get_worker_by_id("w"))
        await client.dequeue_rollout(worker_id="w")
        await note("idle again", client.get_worker_by_id("w"))
        await client.update_worker("v")
        await client.dequeue_rollout(worker_id="v")
        await note("idle at first", client.get_worker_by_id("v"))

    await both.same(scenario)


async def test_an_attempt_changes_hands(both: Both) -> None:
    """A report that names another worker makes that one the attempt's."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        started = await client.start_rollout(1)
        await client.update_attempt(started.rollout_id, "latest", worker_id="w", status="running")
        await note("named by a report", client.get_worker_by_id("w"))
        await client.update_attempt(started.rollout_id, "latest", status="succeeded")
        await note("done", client.get_worker_by_id("w"))

    await both.same(scenario)


async def test_workers_are_queried(both: Both) -> None:
    """Workers are found by status and part of their id, and sorted."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("none", client.query_workers())
        await client.enqueue_rollout(1)
        await client.dequeue_rollout(worker_id="busy-b")
        await client.dequeue_rollout(worker_id="idle-a")
        await client.update_worker("unknown-c", {"n": 1})
        await note("all", client.query_workers(sort_by="worker_id"))
        await note("busy", client.query_workers(status_in=["busy"]))
        await note("two", client.query_workers(status_in=["unknown", "idle"], sort_by="worker_id"))
        await note("no status", client.query_workers(status_in=[]))
        await note("part", client.query_workers(worker_id_contains="idle"))
        await note("and", client.query_workers(status_in=["busy"], worker_id_contains="idle"))
        await note(
            "or",
            client.query_workers(
                status_in=["busy"], worker_id_contains="idle", filter_logic="or", sort_by="worker_id", sort_order="desc"
            ),
        )
        for name in WORKER_ORDERS:
            for order in ("asc", "desc"):
                found = await client.query_workers(sort_by=name, sort_order=cast("Any", order))
                note.value(f"{name} {order}", [getattr(one, name) for one in found])
        # The client sends neither limit nor offset; the answer must have both all the same.
        await note("page", client.query_workers(limit=1, offset=1, sort_by="worker_id"))
        await note("bad field", client.query_workers(sort_by="name"))
        await note("bad status", client.query_workers(status_in=[cast("Any", "dead")]))

    await both.same(scenario)
