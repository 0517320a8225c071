"""Attempts over HTTP: opening, reading, reporting, leases."""

from __future__ import annotations

from typing import Any

import pytest

from agl_streams.store import StreamStore
from tests.server.support import Api

ATTEMPT_KEYS = [
    "rollout_id", "attempt_id", "sequence_id", "start_time", "end_time", "status", "worker_id",
    "last_heartbeat_time", "metadata",
]  # fmt: skip
FIELDS = ["status", "worker_id", "last_heartbeat_time", "metadata"]


async def started(api: Api, **fields: Any) -> tuple[str, str]:
    """The path of a new rollout's attempts, and the id of its first."""
    rollout = (await api.post("rollouts", {"input": 1, **fields})).json
    return f"rollouts/{rollout['rollout_id']}/attempts", rollout["attempt"]["attempt_id"]


async def test_an_attempt_is_opened_without_a_body_too(api: Api) -> None:
    """Opening answers 201 with rollout and new attempt; the known client sends an octet-stream without a body."""
    path, _ = await started(api)
    bare = await api.send("POST", path, headers={"content-type": "application/octet-stream"})
    assert bare.status == 201
    assert (bare.json["status"], bare.json["attempt"]["sequence_id"]) == ("preparing", 2)
    named = (await api.post(path, {"worker_id": "w"})).json
    assert (named["attempt"]["sequence_id"], named["attempt"]["worker_id"]) == (3, "w")


async def test_attempts_are_listed_oldest_first(api: Api) -> None:
    """Listing and searching agree, sort as asked, page, and know nothing of an unknown rollout."""
    path, first = await started(api)
    await api.post(path)
    listed, found = await api.get(path), await api.post(f"{path}/search", {})
    assert listed.body == found.body
    assert [one["sequence_id"] for one in found.json["items"]] == [1, 2]
    assert found.json["items"][0]["attempt_id"] == first
    assert list(found.json["items"][0]) == ATTEMPT_KEYS
    newest = (await api.post(f"{path}/search", {"sort_order": "desc", "limit": 1})).json
    assert ([one["sequence_id"] for one in newest["items"]], newest["total"]) == ([2], 2)
    assert (await api.get("rollouts/ro-x/attempts")).json["items"] == []
    wrong = await api.post(f"{path}/search", {"sort_by": "input"})
    assert wrong.detail == f"Invalid sort_by: input, allowed fields are: {', '.join(ATTEMPT_KEYS)}"
    assert (await api.post(f"{path}/search")).status == 422


async def test_the_latest_attempt_is_the_newest_or_null(api: Api) -> None:
    """`latest` reads the newest attempt, and null where there is none or no rollout."""
    path, _ = await started(api)
    opened = (await api.post(path)).json["attempt"]
    assert (await api.get(f"{path}/latest")).json == opened
    (queued,) = (await api.post("queues/rollouts/enqueue", {"rollouts": [{"input": 1}]})).json
    for unknown in (queued["rollout_id"], "ro-x"):
        assert (await api.get(f"rollouts/{unknown}/attempts/latest")).body == b"null"


async def test_a_report_moves_attempt_and_rollout(api: Api) -> None:
    """A report on the newest attempt, by id or as `latest`, is answered with the attempt and moves the rollout."""
    path, attempt_id = await started(api, worker_id="w")
    running = (await api.post(f"{path}/{attempt_id}", {"status": "running", "worker_id": "v"})).json
    assert list(running) == ATTEMPT_KEYS
    assert (running["status"], running["worker_id"], running["end_time"]) == ("running", "v", None)
    noted = (await api.post(f"{path}/latest", {"last_heartbeat_time": 12.5, "metadata": {"a": None}})).json
    assert (noted["last_heartbeat_time"], noted["metadata"], noted["status"]) == (12.5, {"a": None}, "running")
    failed = (await api.post(f"{path}/latest", {"status": "failed", "reason": "no luck"})).json
    assert failed["end_time"] > 0
    assert failed["metadata"]["agl_streams.reason"] == "no luck"
    rollout = (await api.get(path.removesuffix("/attempts"))).json
    assert (rollout["status"], rollout["attempt"]) == ("failed", failed)


async def test_empty_values_are_legal_in_a_report(api: Api) -> None:
    """An empty body, an empty worker id and empty metadata are no mistakes."""
    path, attempt_id = await started(api)
    bodies: list[dict[str, Any]] = [{}, {"worker_id": ""}, {"metadata": {}}]
    for body in bodies:
        assert (await api.post(f"{path}/{attempt_id}", body)).status == 200


@pytest.mark.parametrize("field", FIELDS)
async def test_null_is_no_report(api: Api, field: str) -> None:
    """Null in a field of a report is 400 in the contract's words; the first field in its order is told."""
    path, attempt_id = await started(api)
    body = dict.fromkeys(["metadata", "last_heartbeat_time", "worker_id", "status"][: 4 - FIELDS.index(field)], None)
    reply = await api.post(f"{path}/{attempt_id}", body)
    assert (reply.status, reply.detail) == (400, f"{field} is invalid; it cannot be a null value.")


async def test_a_wrong_report_changes_nothing(api: Api) -> None:
    """An unknown status is 422, an unknown rollout or attempt 404."""
    path, attempt_id = await started(api)
    before = (await api.get(f"{path}/latest")).body
    wrong = await api.post(f"{path}/{attempt_id}", {"status": "cancelled"})
    assert (wrong.status, wrong.detail[0]["type"]) == (422, "literal_error")
    assert (await api.post(f"{path}/{attempt_id}")).status == 422
    assert (await api.post(f"{path}/at-x", {"status": "failed"})).status == 404
    assert (await api.post("rollouts/ro-x/attempts/latest", {"status": "failed"})).status == 404
    assert (await api.get(f"{path}/{attempt_id}")).status == 405
    assert (await api.get(f"{path}/latest")).body == before


async def test_a_lease_is_given_and_renewed(api: Api, direct: StreamStore) -> None:
    """A dequeue may ask for a lease; renewing tells what became of the attempt."""
    await api.post("queues/rollouts/enqueue", {"rollouts": [{"input": 1}]})
    (taken,) = (await api.post("queues/rollouts/dequeue", {"worker_id": "w", "lease_seconds": 60})).json
    path = f"rollouts/{taken['rollout_id']}/attempts/{taken['attempt']['attempt_id']}"
    assert (await direct.expire_once(0)).next_deadline_us is not None
    assert (await api.post(f"{path}/renew")).json == {"outcome": "renewed"}
    assert (await api.post(f"{path}/renew", {"lease_seconds": 5})).json == {"outcome": "renewed"}
    await api.post(path, {"status": "succeeded"})
    assert (await api.post(f"{path}/renew")).json == {"outcome": "ended"}
    await api.post(f"rollouts/{taken['rollout_id']}/attempts")
    assert (await api.post(f"{path}/renew")).json == {"outcome": "superseded"}
    assert (await api.post("rollouts/ro-x/attempts/at-x/renew")).json == {"outcome": "not_found_attempt"}


async def test_a_model_call_is_admitted_while_the_attempt_is_open(api: Api) -> None:
    """Admitting gives the span's number; an ended or superseded attempt is a conflict that names its kind."""
    path, attempt_id = await started(api)
    assert (await api.post(f"{path}/{attempt_id}/admit")).json == {"sequence_id": 1}
    await api.post(path)
    superseded = await api.post(f"{path}/{attempt_id}/admit")
    assert (superseded.status, superseded.headers["x-error"]) == (409, "Superseded")
    await api.post(f"{path}/latest", {"status": "failed"})
    ended = await api.post(f"{path}/{(await api.get(f'{path}/latest')).json['attempt_id']}/admit")
    assert (ended.status, ended.headers["x-error"]) == (409, "AttemptEnded")
    assert (await api.post(f"{path}/at-x/admit")).status == 404


async def test_sums_are_read_once_settled(api: Api, direct: StreamStore) -> None:
    """Sums of rollout and attempt are what was folded; settling folds everything that was written before."""
    path, attempt_id = await started(api)
    pair = {"rollout_id": path.split("/")[1], "attempt_id": attempt_id}
    span: dict[str, Any] = {
        **pair, "sequence_id": 1, "trace_id": "t", "span_id": "s", "parent_id": None, "name": "n",
        "status": {"status_code": "OK"}, "attributes": {}, "events": [], "links": [], "start_time": 1.0,
        "end_time": 2.0, "context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""},
    }  # fmt: skip
    assert (await api.post("spans", span)).status == 201
    assert (await api.post("settle")).json == {"settled": True}
    for place in (path.removesuffix("/attempts"), f"{path}/{attempt_id}"):
        sums = (await api.get(f"{place}/sums")).json
        assert (sums["spans"], sums["first_span_time"], sums["last_span_time"]) == (1, 1.0, 2.0)
