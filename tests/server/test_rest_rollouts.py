"""Rollouts over HTTP: every route's answer, byte for byte where the contract is, and its documented errors."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.support import Api
from tests.support.servers import Server, Servers
from tests.support.waiting import until

CONFIG: dict[str, Any] = {
    "timeout_seconds": None,
    "unresponsive_seconds": None,
    "max_attempts": 1,
    "retry_condition": [],
}
ROLLOUT_KEYS = [
    "rollout_id", "input", "start_time", "end_time", "mode", "resources_id", "status", "config", "metadata",
]  # fmt: skip
ATTEMPT_KEYS = [
    "rollout_id", "attempt_id", "sequence_id", "start_time", "end_time", "status", "worker_id",
    "last_heartbeat_time", "metadata",
]  # fmt: skip
NULLS = {"mode": None, "resources_id": None, "config": None, "metadata": None}


async def enqueue(api: Api, *inputs: Any) -> list[dict[str, Any]]:
    reply = await api.post("queues/rollouts/enqueue", {"rollouts": [{"input": one} for one in inputs]})
    assert reply.status == 201
    return reply.json


async def test_enqueue_answers_with_the_rollouts_as_stored(api: Api) -> None:
    """Enqueuing answers 201 with a compact list in order: nulls present, defaults filled in, no attempt."""
    reply = await api.post("queues/rollouts/enqueue", {"rollouts": [{"input": {"q": "é", "n": 3}, **NULLS}]})
    assert reply.status == 201
    (rollout,) = reply.json
    assert list(rollout) == ROLLOUT_KEYS
    assert rollout == {
        "rollout_id": rollout["rollout_id"],
        "start_time": rollout["start_time"],
        "input": {"q": "é", "n": 3},
        "end_time": None,
        "mode": None,
        "resources_id": None,
        "status": "queuing",
        "config": CONFIG,
        "metadata": {},
    }
    assert '"input":{"q":"é","n":3}'.encode() in reply.body


async def test_enqueue_keeps_order_numbers_and_unknown_fields_out(api: Api) -> None:
    """A bulk keeps its order, numbers of any size and form survive, unknown fields are ignored, none is none."""
    inputs: list[Any] = [10**30, -0.0, 1e-7, 1e22, [3.0, 3], None]
    found = await enqueue(api, *inputs)
    assert [one["input"] for one in found] == inputs
    assert str(found[1]["input"]) == "-0.0"
    assert [type(number) for number in found[4]["input"]] == [float, int]
    assert await enqueue(api) == []
    (rollout,) = (await api.post("queues/rollouts/enqueue", {"rollouts": [{"input": 1, "priority": 9}], "x": 1})).json
    assert "priority" not in rollout


async def test_numbers_that_json_lacks_become_null(api: Api) -> None:
    """NaN and infinity in an input or metadata are stored as null."""
    body = b'{"rollouts":[{"input":{"a":[NaN,1.5,-Infinity],"b":1e999},"metadata":{"x":Infinity,"y":1}}]}'
    (rollout,) = (await api.raw("queues/rollouts/enqueue", body)).json
    assert rollout["input"] == {"a": [None, 1.5, None], "b": None}
    assert rollout["metadata"] == {"x": None, "y": 1}


async def test_enqueue_with_an_id_of_the_caller_is_safe_to_repeat(api: Api) -> None:
    """The same rollout id again answers with the first rollout and puts nothing on the queue."""
    body = {"rollouts": [{"input": 1, "rollout_id": "mine"}]}
    first = await api.post("queues/rollouts/enqueue", body)
    assert (await api.post("queues/rollouts/enqueue", body)).body == first.body
    assert len((await api.post("queues/rollouts/dequeue", {"limit": 5})).json) == 1


WRONG: list[tuple[Any, str, list[Any]]] = [
    ({}, "missing", ["body", "rollouts"]),
    ({"rollouts": [{}]}, "missing", ["body", "rollouts", 0, "input"]),
    ({"rollouts": [{"input": 1, "mode": "x"}]}, "literal_error", ["body", "rollouts", 0, "mode"]),
    ({"rollouts": [{"input": 1, "resources_id": 5}]}, "string_type", ["body", "rollouts", 0, "resources_id"]),
    ({"rollouts": [{"input": 1, "metadata": []}]}, "dict_type", ["body", "rollouts", 0, "metadata"]),
    (
        {"rollouts": [{"input": 1, "config": {"max_attempts": 0}}]},
        "greater_than_equal",
        ["body", "rollouts", 0, "config", "max_attempts"],
    ),
    (
        {"rollouts": [{"input": 1, "config": 3}]},
        "model_attributes_type",
        ["body", "rollouts", 0, "config"],
    ),
    ([], "model_attributes_type", ["body"]),
]


@pytest.mark.parametrize(("body", "kind", "place"), WRONG)
async def test_a_wrong_enqueue_is_422_and_stores_nothing(
    api: Api, direct: StreamStore, body: Any, kind: str, place: list[Any]
) -> None:
    """What does not validate is told with its place, kind and input, and no rollout is made."""
    reply = await api.post("queues/rollouts/enqueue", body)
    assert reply.status == 422
    (finding,) = reply.detail
    assert (finding["type"], finding["loc"]) == (kind, place)
    assert list(finding)[:4] == ["type", "loc", "msg", "input"]
    assert "url" not in finding
    assert len(await direct.query_rollouts()) == 0


async def test_dequeue_takes_what_is_there_in_order(api: Api) -> None:
    """Dequeuing opens an attempt of the oldest rollouts for the worker; an empty queue is an empty list."""
    first, second, third = await enqueue(api, 1, 2, 3)
    (taken,) = (await api.post("queues/rollouts/dequeue", {"worker_id": "w"})).json
    assert list(taken) == [*ROLLOUT_KEYS, "attempt"]
    assert list(taken["attempt"]) == ATTEMPT_KEYS
    assert (taken["rollout_id"], taken["status"]) == (first["rollout_id"], "preparing")
    assert (taken["attempt"]["worker_id"], taken["attempt"]["status"], taken["attempt"]["sequence_id"]) == (
        "w", "preparing", 1,
    )  # fmt: skip
    rest = (await api.post("queues/rollouts/dequeue", {"limit": 9})).json
    assert [one["rollout_id"] for one in rest] == [second["rollout_id"], third["rollout_id"]]
    reply = await api.post("queues/rollouts/dequeue")
    assert (reply.status, reply.body) == (200, b"[]")


@pytest.mark.parametrize("body", [b"", b"null", b"{}"])
async def test_dequeue_needs_no_body(api: Api, body: bytes) -> None:
    """An absent, empty or null body means one rollout for nobody in particular."""
    await enqueue(api, 1, 2)
    (taken,) = (await api.raw("queues/rollouts/dequeue", body)).json
    assert taken["attempt"]["worker_id"] is None


@pytest.mark.parametrize("limit", [0, -3])
async def test_dequeue_of_none_takes_none(api: Api, limit: int) -> None:
    """A limit of zero or less answers an empty list and leaves the queue alone; null is no limit."""
    await enqueue(api, 1)
    assert (await api.post("queues/rollouts/dequeue", {"limit": limit, "worker_id": "w"})).json == []
    assert (await api.post("queues/rollouts/dequeue", {"limit": None})).status == 422
    assert len((await api.post("queues/rollouts/dequeue")).json) == 1


async def test_start_makes_a_rollout_with_its_attempt(api: Api) -> None:
    """Starting answers 201 with rollout and attempt preparing; the input is required and may be null."""
    reply = await api.post("rollouts", {"input": None, **NULLS, "worker_id": "w", "mode": "val"})
    assert reply.status == 201
    started = reply.json
    assert (started["status"], started["mode"], started["attempt"]["status"]) == ("preparing", "val", "preparing")
    assert started["attempt"]["worker_id"] == "w"
    assert started["attempt"]["start_time"] == started["start_time"]
    missing = await api.post("rollouts", {"mode": "val"})
    assert (missing.status, missing.detail[0]["loc"]) == (422, ["body", "input"])


async def test_a_rollout_is_read_with_its_attempt_if_it_has_one(api: Api) -> None:
    """The key `attempt` is there exactly when there is an attempt, and an unknown rollout is null."""
    (queued,) = await enqueue(api, 1)
    assert (await api.get(f"rollouts/{queued['rollout_id']}")).json == queued
    started = (await api.post("rollouts", {"input": 2})).json
    assert (await api.get(f"rollouts/{started['rollout_id']}")).json == started
    for unknown in ("ro-nope", "search", "a%20b", "%C3%A9"):
        reply = await api.get(f"rollouts/{unknown}")
        assert (reply.status, reply.body) == (200, b"null")


async def test_listing_and_searching_give_the_same_page(api: Api) -> None:
    """GET with repeated parameters and POST with JSON are one query, whose envelope has its four keys in order."""
    made = await enqueue(api, *range(4))
    await api.post("queues/rollouts/dequeue")
    listed = await api.get("rollouts", status_in=["queuing", "preparing"], limit=2, offset=1)
    found = await api.post("rollouts/search", {"status_in": ["queuing", "preparing"], "limit": 2, "offset": 1})
    assert listed.body == found.body
    assert list(found.json) == ["items", "limit", "offset", "total"]
    assert (found.json["limit"], found.json["offset"], found.json["total"]) == (2, 1, 4)
    assert [one["rollout_id"] for one in found.json["items"]] == [one["rollout_id"] for one in made[1:3]]
    everything = (await api.post("rollouts/search", {})).json["items"]
    assert ["attempt" in one for one in everything] == [True, False, False, False]


async def test_filters_join_by_and_or_or(api: Api) -> None:
    """An absent or null list is no filter, an empty one matches nothing, and conditions join as `filter_logic` says."""
    ids = [one["rollout_id"] for one in await enqueue(api, 1, 2)]

    async def found(**body: Any) -> list[str]:
        return [one["rollout_id"] for one in (await api.post("rollouts/search", body)).json["items"]]

    assert await found(status_in=None, rollout_id_in=None) == ids
    assert await found(rollout_id_in=[]) == []
    assert await found(rollout_id_in=[ids[1]], status_in=["queuing"]) == [ids[1]]
    assert await found(rollout_id_in=[ids[1]], status_in=["failed"]) == []
    assert await found(rollout_id_in=[ids[1]], status_in=["failed"], filter_logic="or") == [ids[1]]
    assert await found(rollout_id_contains=ids[0][3:9]) == [ids[0]]
    assert await found(sort_by="rollout_id", sort_order="desc") == sorted(ids, reverse=True)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"sort_by": "nope", "limit": 0}, f"Invalid sort_by: nope, allowed fields are: {', '.join(ROLLOUT_KEYS)}"),
        ({"limit": 0, "offset": -1}, "Limit must be greater than 0 or -1 for no limit"),
        ({"limit": -2}, "Limit must be greater than 0 or -1 for no limit"),
        ({"offset": -1}, "Offset must be greater than or equal to 0"),
    ],
)
async def test_a_bad_page_is_400_in_the_words_of_the_contract(api: Api, query: dict[str, Any], told: str) -> None:
    """Sort field, limit and offset are checked in this order, by both forms of the query."""
    for reply in (await api.get("rollouts", **query), await api.post("rollouts/search", query)):
        assert (reply.status, reply.detail) == (400, told)


@pytest.mark.parametrize(
    ("query", "kind", "field"),
    [
        ({"limit": "x"}, "int_parsing", "limit"),
        ({"sort_order": "up"}, "literal_error", "sort_order"),
        ({"filter_logic": "xor"}, "literal_error", "filter_logic"),
        ({"status_in": ["lost"]}, "literal_error", "status_in"),
    ],
)
async def test_a_query_that_does_not_validate_is_422(api: Api, query: Any, kind: str, field: str) -> None:
    """A wrong parameter is told with where it stands: in the query or in the body."""
    for where, reply in (
        ("query", await api.get("rollouts", **query)),
        ("body", await api.post("rollouts/search", query)),
    ):
        assert reply.status == 422
        assert reply.detail[0]["type"] == kind
        assert reply.detail[0]["loc"][:2] == [where, field]


async def test_numbers_are_read_leniently(api: Api) -> None:
    """Text, whole floats and booleans pass for an integer, as pydantic reads them."""
    await enqueue(api, 1, 2, 3)
    for limit in ("2", 2.0):
        assert (await api.post("rollouts/search", {"limit": limit})).json["limit"] == 2
    assert (await api.post("rollouts/search", {"limit": True})).json["limit"] == 1


async def test_an_update_changes_what_it_names(api: Api) -> None:
    """An absent key leaves a field, null clears it where it may be null, and the answer has no attempt."""
    started = (await api.post("rollouts", {"input": 1, "mode": "train", "metadata": {"a": 1}})).json
    path = f"rollouts/{started['rollout_id']}"
    same = (await api.post(path, {})).json
    assert same == {name: value for name, value in started.items() if name != "attempt"}
    changed = (await api.post(path, {"input": None, "mode": None, "metadata": {"b": 2}, "config": {}})).json
    assert (changed["input"], changed["mode"], changed["metadata"]) == (None, None, {"b": 2})
    finished = (await api.post(path, {"status": "succeeded"})).json
    assert finished["end_time"] >= started["start_time"]
    queued = (await api.post(path, {"status": "queuing"})).json
    assert (queued["status"], queued["end_time"]) == ("queuing", None)
    assert [one["rollout_id"] for one in (await api.post("queues/rollouts/dequeue", {"limit": 5})).json] == [
        started["rollout_id"]
    ]


@pytest.mark.parametrize(
    ("body", "field"), [({"config": None, "status": None}, "status"), ({"config": None, "status": "failed"}, "config")]
)
async def test_null_where_it_cannot_be_is_400(api: Api, body: dict[str, Any], field: str) -> None:
    """Status and config cannot be null; the first of them in the contract's order is told."""
    (queued,) = await enqueue(api, 1)
    reply = await api.post(f"rollouts/{queued['rollout_id']}", body)
    assert (reply.status, reply.detail) == (400, f"{field} is invalid; it cannot be a null value.")
    assert (await api.get(f"rollouts/{queued['rollout_id']}")).json == queued


async def test_an_unknown_rollout_is_404_where_it_is_to_be_changed(api: Api) -> None:
    """Updating, cancelling, starting an attempt and reading sums of an unknown rollout tell that it is not there."""
    for reply in (
        await api.post("rollouts/ro-x", {}),
        await api.post("rollouts/ro-x/cancel", {"reason": "r"}),
        await api.post("rollouts/ro-x/attempts"),
        await api.get("rollouts/ro-x/sums"),
    ):
        assert reply.status == 404
        assert "ro-x" in reply.detail


@pytest.mark.parametrize("body", [b"", b"null"])
async def test_an_update_needs_a_body(api: Api, body: bytes) -> None:
    """Updating without a body is told in the words of FastAPI."""
    (queued,) = await enqueue(api, 1)
    reply = await api.raw(f"rollouts/{queued['rollout_id']}", body)
    assert reply.status == 422
    assert reply.detail == [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]


async def test_waiting_returns_what_is_finished(api: Api, direct: StreamStore) -> None:
    """Waiting answers with the finished ones in the order asked, doubles included, without unknown and open ones."""
    a, b, c = [one["rollout_id"] for one in await enqueue(api, 1, 2, 3)]
    await direct.update_rollout(a, status="failed")
    await direct.update_rollout(c, status="succeeded")
    reply = await api.post("waits/rollouts", {"rollout_ids": [c, "ro-x", b, a, c], "timeout": 0})
    assert [one["rollout_id"] for one in reply.json] == [c, a, c]
    assert list(reply.json[0]) == ROLLOUT_KEYS
    assert (await api.post("waits/rollouts", {"rollout_ids": [b], "timeout": 0.01})).json == []
    assert (await api.post("waits/rollouts", {"rollout_ids": ["ro-x"], "timeout": None})).json == []


async def test_cancelling_tells_the_reason(api: Api) -> None:
    """A cancelled rollout is finished, and its metadata says why."""
    (queued,) = await enqueue(api, 1)
    cancelled = (await api.post(f"rollouts/{queued['rollout_id']}/cancel", {"reason": "not needed"})).json
    assert (cancelled["status"], cancelled["metadata"]) == ("cancelled", {"agl_streams.reason": "not needed"})
    assert (await api.post(f"rollouts/{queued['rollout_id']}/cancel", {"reason": " "})).status == 400


async def test_a_dequeue_may_wait_for_work(api: Api, direct: StreamStore) -> None:
    """With `wait` an empty queue is waited at; each waiting call gets work as it comes, and none when time is over."""
    assert (await api.post("queues/rollouts/dequeue", {"wait": 0.05})).json == []
    waiting = [asyncio.create_task(api.post("queues/rollouts/dequeue", {"wait": 20})) for _ in range(3)]
    made = {(await direct.enqueue_rollout(number)).rollout_id for number in range(3)}
    assert {(await task).json[0]["rollout_id"] for task in waiting} == made


async def test_work_given_to_a_caller_that_has_gone_goes_back(servers: Servers, settings: Settings) -> None:
    """A caller that hangs up while it is being given a rollout leaves it to others, at once."""
    redis = servers.start()
    own = settings.model_copy(update={"redis_url": redis.url})
    async with (
        serving(own) as url,
        aiohttp.ClientSession(url) as session,
        await StreamStore.connect(settings=own) as store,
    ):
        api = Api(session)
        queued = await store.enqueue_rollout(1)
        redis.execute("CLIENT", "PAUSE", 600, "WRITE")
        waiting = asyncio.create_task(api.post("queues/rollouts/dequeue", {"wait": 20}))
        await until(lambda: calls_in_flight(redis), what="the claim to be on its way")
        waiting.cancel()

        async def back() -> bool:
            found = await store.get_rollout_by_id(queued.rollout_id)
            return found is not None and found.status == "requeuing"

        await until(back, what="the rollout to be back on the queue")
        (taken,) = (await api.post("queues/rollouts/dequeue")).json
        assert (taken["rollout_id"], taken["attempt"]["sequence_id"]) == (queued.rollout_id, 2)


def calls_in_flight(redis: Server) -> bool:
    clients = redis.execute("CLIENT", "LIST")
    assert isinstance(clients, bytes)
    return b"cmd=fcall " in clients and b"flags=b" in clients


async def test_a_repeated_dequeue_gets_the_first_answer(api: Api, direct: StreamStore) -> None:
    """Under the same key a dequeue is answered as the first time, and what it was given can be asked for alone."""
    made = [await direct.enqueue_rollout(number) for number in range(3)]
    key = {"idempotency-key": "k"}
    first = await api.post("queues/rollouts/dequeue", {"limit": 2}, headers=key)
    again = await api.post("queues/rollouts/dequeue", {"limit": 2}, headers={**key, "idempotency-repeat": "1"})
    asked = await api.post("queues/rollouts/dequeued", {"limit": 2}, headers=key)
    assert first.body == again.body == asked.body
    assert [one["rollout_id"] for one in first.json] == [one.rollout_id for one in made[:2]]
    assert (await api.post("queues/rollouts/dequeued", {"limit": 2}, headers={"idempotency-key": "x"})).json == []
    assert (await api.post("queues/rollouts/dequeued", {"limit": 2})).status == 400
    assert (await api.post("queues/rollouts/dequeue", headers={"idempotency-key": "k" * 300})).status == 400
