"""Resources and workers over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from agl_streams.store import StreamStore
from tests.server.support import Api

LLM = {"resource_type": "llm", "endpoint": "http://h/v1", "model": "m"}
PROXY = {"resource_type": "proxy_llm", "endpoint": "http://h/v1", "model": "m", "sampling_parameters": {"t": 0.5}}
PROMPT = {"resource_type": "prompt_template", "template": "{x}", "engine": "f-string"}
WORKER_KEYS = [
    "worker_id", "status", "heartbeat_stats", "last_heartbeat_time", "last_dequeue_time", "last_busy_time",
    "last_idle_time", "current_rollout_id", "current_attempt_id",
]  # fmt: skip


async def test_resources_are_stored_as_the_bare_map(api: Api) -> None:
    """Adding answers 201 with version 1, defaults filled in and the fields in the contract's order."""
    reply = await api.post("resources", {"a": LLM, "b": PROXY, "c": PROMPT})
    assert reply.status == 201
    added = reply.json
    assert list(added) == ["resources_id", "create_time", "update_time", "version", "resources"]
    assert added["version"] == 1
    assert list(added["resources"]["a"]) == ["resource_type", "endpoint", "model", "api_key", "sampling_parameters"]
    assert added["resources"]["a"] == {**LLM, "api_key": None, "sampling_parameters": {}}
    assert added["resources"]["c"] == PROMPT
    assert (await api.get("resources/latest")).json == added
    assert (await api.get(f"resources/{added['resources_id']}")).json == added
    assert (await api.post("resources", {})).json["resources"] == {}


async def test_an_update_makes_the_next_version(api: Api) -> None:
    """Updating creates an unknown id at version 1 and replaces a known one; words of the path are ids there."""
    first = (await api.post("resources/mine", {"a": LLM})).json
    second = (await api.post("resources/mine", {"b": PROMPT})).json
    assert (first["version"], second["version"]) == (1, 2)
    assert (second["create_time"], list(second["resources"])) == (first["create_time"], ["b"])
    assert second["update_time"] > first["update_time"]
    assert (await api.post("resources/latest", {})).json["resources_id"] == "latest"
    assert (await api.post("resources/search", {})).json["resources_id"] == "search"


async def test_resources_that_are_not_there_are_null(api: Api) -> None:
    """The latest of none, and an unknown id, answer null."""
    assert (await api.get("resources/latest")).body == b"null"
    assert (await api.get("resources/rs-x")).body == b"null"


async def test_resources_are_listed(api: Api) -> None:
    """Listing pages and filters by id; both filters must hold."""
    for name in ("one", "two"):
        await api.post(f"resources/{name}", {})
    page = (await api.get("resources", limit=1, offset=1)).json
    assert ([item["resources_id"] for item in page["items"]], page["total"]) == (["two"], 2)
    found = (await api.get("resources", resources_id_contains="o", resources_id="one")).json["items"]
    assert [item["resources_id"] for item in found] == ["one"]
    wrong = await api.get("resources", sort_by="x")
    assert wrong.detail == (
        "Invalid sort_by: x, allowed fields are: resources_id, create_time, update_time, version, resources"
    )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"a": {"endpoint": "e", "model": "m"}}, "union_tag_not_found"),
        ({"a": {"resource_type": "x"}}, "union_tag_invalid"),
        ({"a": {"resource_type": "llm", "model": "m"}}, "missing"),
        ({"a": {**PROMPT, "engine": "x"}}, "literal_error"),
        ([], "dict_type"),
    ],
)
async def test_what_is_no_resource_is_422(api: Api, body: Any, kind: str) -> None:
    """A missing or unknown tag, a missing field and a wrong shape are told, and nothing is stored."""
    reply = await api.post("resources", body)
    assert (reply.status, reply.detail[0]["type"]) == (422, kind)
    assert (await api.get("resources")).json["total"] == 0


async def test_a_rollout_gets_the_latest_resources(api: Api) -> None:
    """An enqueue that names no resources gets the latest of that moment, one that names some gets those."""
    added = (await api.post("resources", {})).json["resources_id"]
    rollouts = {"rollouts": [{"input": 1}, {"input": 2, "resources_id": "mine"}]}
    found = (await api.post("queues/rollouts/enqueue", rollouts)).json
    assert [one["resources_id"] for one in found] == [added, "mine"]


async def test_a_heartbeat_makes_a_worker(api: Api) -> None:
    """A heartbeat, with or without a body, creates the worker as unknown and keeps the statistics it does not name."""
    reply = await api.post("workers/w", {"heartbeat_stats": {"gpu": [1, None]}})
    assert reply.status == 200
    worker = reply.json
    assert list(worker) == WORKER_KEYS
    assert (worker["status"], worker["heartbeat_stats"]) == ("unknown", {"gpu": [1, None]})
    again = (await api.send("POST", "workers/w", headers={"content-type": "application/octet-stream"})).json
    assert again["heartbeat_stats"] == {"gpu": [1, None]}
    assert again["last_heartbeat_time"] > worker["last_heartbeat_time"]
    assert (await api.post("workers/w", {"heartbeat_stats": {}})).json["heartbeat_stats"] == {}
    nothing = await api.raw("workers/w", b'{"heartbeat_stats":{"load":NaN}}')
    assert nothing.json["heartbeat_stats"] == {"load": None}
    wrong = await api.post("workers/w", {"heartbeat_stats": None})
    assert (wrong.status, wrong.detail) == (400, "heartbeat_stats is invalid; it cannot be a null value.")


async def test_workers_show_what_they_do(api: Api, direct: StreamStore) -> None:
    """A worker with an attempt is busy with it; workers are found by status and by a part of their id."""
    started = await direct.start_rollout(1, worker_id="busy-one")
    await api.post("workers/other")
    busy = (await api.get("workers/busy-one")).json
    assert (busy["status"], busy["current_rollout_id"]) == ("busy", started.rollout_id)
    listed, found = (
        await api.get("workers", status_in=["busy"]),
        await api.post("workers/search", {"status_in": ["busy"]}),
    )
    assert listed.body == found.body
    assert [one["worker_id"] for one in found.json["items"]] == ["busy-one"]
    either = {"status_in": ["busy"], "worker_id_contains": "other", "filter_logic": "or"}
    assert (await api.post("workers/search", either)).json["total"] == 2
    assert (await api.post("workers/search", {**either, "filter_logic": "and"})).json["total"] == 0


async def test_a_worker_that_is_not_there_is_null(api: Api) -> None:
    """An unknown worker reads as null, also one called like a word of the path."""
    assert (await api.get("workers/w")).body == b"null"
    assert (await api.get("workers/search")).body == b"null"
    assert (await api.get("workers/a%20b%2")).status in (200, 400)
