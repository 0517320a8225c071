"""Spans over HTTP: storing, extras, duplicates, queries, numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agl_streams.models import AttemptedRollout
from agl_streams.store import StreamStore
from tests.server.support import Api, span_json

SPAN_KEYS = [
    "rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "status", "attributes",
    "events", "links", "start_time", "end_time", "context", "parent", "resource",
]  # fmt: skip


@pytest.fixture
async def attempted(direct: StreamStore) -> AttemptedRollout:
    """A rollout with an open attempt."""
    return await direct.start_rollout({"q": 1})


async def test_a_span_comes_back_as_it_was_sent(api: Api, attempted: AttemptedRollout) -> None:
    """Storing answers 201 with the span, declared fields in order, nulls present, the types of attributes kept."""
    attributes = {"i": 1, "f": 1.0, "b": True, "s": "1", "l": [], "ints": [1, 2], "mixed": [1, 2.5], "odd": [1, True]}
    sent = span_json(attempted, attributes=attributes, end_time=2)
    reply = await api.post("spans", sent)
    assert reply.status == 201
    stored = reply.json
    assert list(stored) == SPAN_KEYS
    assert stored["end_time"] == 2.0
    assert json.dumps(stored["attributes"]) == json.dumps({**attributes, "mixed": [1.0, 2.5], "odd": [True, True]})
    assert b'"end_time":2.0' in reply.body
    assert stored | {"attributes": 0, "end_time": 0} == sent | {"attributes": 0, "end_time": 0}


async def test_extras_are_kept_where_the_contract_keeps_them(api: Api, attempted: AttemptedRollout) -> None:
    """Unknown keys stay on span, status, context, event and link, behind the declared ones, not on the resource."""
    context = {"trace_id": "t", "span_id": "s", "is_remote": True, "trace_state": {"a": "b"}, "extra": 1}
    sent = span_json(
        attempted,
        kind="CLIENT",
        status={"status_code": "ERROR", "description": "d", "extra": 2},
        context=context,
        events=[{"name": "e", "attributes": {}, "timestamp": 2, "extra": None}],
        links=[{"context": context, "attributes": None, "extra": [3]}],
        resource={"attributes": {"a": 1}, "schema_url": "u", "extra": 4},
    )
    stored = (await api.post("spans", sent)).json
    assert list(stored) == [*SPAN_KEYS, "kind"]
    assert stored["status"] == {"status_code": "ERROR", "description": "d", "extra": 2}
    assert list(stored["context"])[-1] == "extra"
    assert stored["events"] == [{"name": "e", "attributes": {}, "timestamp": 2.0, "extra": None}]
    assert stored["links"][0]["extra"] == [3]
    assert stored["resource"] == {"attributes": {"a": 1}, "schema_url": "u"}
    (found,) = (await api.post("spans/search", {"rollout_id": attempted.rollout_id})).json["items"]
    assert found == stored


async def test_a_duplicate_is_null(api: Api, attempted: AttemptedRollout) -> None:
    """The same span id again answers 201 with null, and still raises the counter."""
    sent = span_json(attempted)
    assert (await api.post("spans", sent)).json is not None
    again = await api.post("spans", {**sent, "sequence_id": 7})
    assert (again.status, again.body) == (201, b"null")
    pair = {"rollout_id": attempted.rollout_id, "attempt_id": attempted.attempt.attempt_id}
    assert (await api.post("spans/next", pair)).body == b'{"sequence_id":8}'


async def test_the_store_can_number_a_span(api: Api, attempted: AttemptedRollout) -> None:
    """With `assign_sequence` the store gives the number, in the same call."""
    await api.post("spans", span_json(attempted, sequence_id=4))
    reply = await api.post("spans?assign_sequence=true", span_json(attempted, span_id="b", sequence_id=1))
    assert reply.json["sequence_id"] == 5
    assert (await api.post("spans?assign_sequence=maybe", span_json(attempted))).detail[0]["loc"] == [
        "query",
        "assign_sequence",
    ]


WRONG: list[tuple[dict[str, Any], list[Any]]] = [
    ({"status": {"status_code": "ok"}}, ["status", "status_code"]),
    ({"attributes": {"a": None}}, ["attributes", "a"]),
    ({"attributes": {"a": {"b": 1}}}, ["attributes", "a"]),
    ({"events": [{"attributes": {}}]}, ["events", 0, "name"]),
    ({"name": None}, ["name"]),
    ({"sequence_id": "x"}, ["sequence_id"]),
]


@pytest.mark.parametrize(("changes", "place"), WRONG)
async def test_a_span_that_does_not_validate_is_422(
    api: Api, attempted: AttemptedRollout, changes: dict[str, Any], place: list[Any]
) -> None:
    """Every finding is told with its place in the body."""
    reply = await api.post("spans", span_json(attempted, **changes))
    assert reply.status == 422
    assert {tuple(finding["loc"][1 : 1 + len(place)]) for finding in reply.detail} == {tuple(place)}


@pytest.mark.parametrize("key", SPAN_KEYS)
async def test_every_declared_key_must_be_there(api: Api, attempted: AttemptedRollout, key: str) -> None:
    """A span without one of its sixteen keys is 422, though the value may be null."""
    sent = span_json(attempted)
    del sent[key]
    (finding,) = (await api.post("spans", sent)).detail
    assert (finding["type"], finding["loc"]) == ("missing", ["body", key])


async def test_a_span_of_nobody_is_404(api: Api, attempted: AttemptedRollout) -> None:
    """An unknown rollout or attempt is told, and nothing is stored."""
    for changes in ({"rollout_id": "ro-x"}, {"attempt_id": "at-x"}):
        assert (await api.post("spans", span_json(attempted, **changes))).status == 404
    assert (await api.post("spans/search", {"rollout_id": attempted.rollout_id})).json["total"] == 0


async def test_spans_are_queried_by_what_they_are(api: Api, attempted: AttemptedRollout) -> None:
    """Both forms of the query filter by exact and contained values, joined by and or or, in order of number."""
    for number, name in enumerate(["alpha", "beta", "alphabet"], start=1):
        await api.post("spans", span_json(attempted, span_id=f"s{number}", name=name, sequence_id=10 - number))

    async def names(**query: Any) -> list[str]:
        query = {"rollout_id": attempted.rollout_id, **query}
        listed, found = await api.get("spans", **query), await api.post("spans/search", query)
        assert listed.body == found.body
        return [one["name"] for one in found.json["items"]]

    assert await names() == ["alphabet", "beta", "alpha"]
    assert await names(attempt_id="latest", name_contains="alpha", sort_order="desc") == ["alpha", "alphabet"]
    assert await names(name="beta", span_id="s1") == []
    assert await names(name="beta", span_id="s1", filter_logic="or") == ["beta", "alpha"]
    assert await names(attempt_id="at-x") == []
    assert await names(limit=1, offset=2) == ["alpha"]


async def test_a_query_of_spans_needs_a_rollout(api: Api) -> None:
    """Without a rollout id both forms are 422; of an unknown rollout there are none."""
    assert (await api.get("spans")).detail[0]["loc"] == ["query", "rollout_id"]
    assert (await api.post("spans/search", {})).detail[0]["loc"] == ["body", "rollout_id"]
    assert (await api.post("spans/search", {"rollout_id": "ro-x", "attempt_id": "latest"})).json["items"] == []


async def test_numbers_are_never_handed_out_twice(api: Api, attempted: AttemptedRollout) -> None:
    """Numbers count per rollout, for unknown ids too, one by one or in bulk."""
    pair = {"rollout_id": attempted.rollout_id, "attempt_id": attempted.attempt.attempt_id}
    assert (await api.post("spans/next", pair)).json == {"sequence_id": 1}
    bulk = await api.post("spans/next/batch", {"attempts": [pair, {"rollout_id": "ro-x", "attempt_id": "at-x"}, pair]})
    assert bulk.json == {"sequence_ids": [2, 1, 3]}
    assert (await api.post("spans/next", {"rollout_id": "ro-x"})).status == 422


async def test_many_spans_are_stored_in_one_call(api: Api, direct: StreamStore, attempted: AttemptedRollout) -> None:
    """A batch of several attempts answers with each span's number in its order, null for a duplicate."""
    other = await direct.start_rollout(2)
    spans = [
        span_json(attempted, span_id="a"),
        span_json(other, span_id="b"),
        span_json(attempted, span_id="c"),
        span_json(attempted, span_id="a"),
    ]
    reply = await api.post("spans/batch", {"spans": spans, "assign_sequence": True})
    assert (reply.status, reply.json) == (201, {"sequence_ids": [1, 1, 2, None]})
    wrong = await api.post("spans/batch", {"spans": [*spans, {}]})
    assert (wrong.status, wrong.detail[0]["loc"][:3]) == (422, ["body", "spans", 4])


async def test_numbers_that_json_lacks_stay_in_spans_and_leave_as_null(api: Api, attempted: AttemptedRollout) -> None:
    """NaN in an attribute is stored; an answer has null for it, or NaN for a reader that asks to keep it."""
    body = json.dumps(span_json(attempted, attributes={"a": float("nan"), "b": [1.5, float("-inf")]})).encode()
    stored = await api.raw("spans", body)
    assert stored.json["attributes"] == {"a": None, "b": [1.5, None]}
    query = {"rollout_id": attempted.rollout_id}
    assert (await api.post("spans/search", query)).json["items"][0]["attributes"]["a"] is None
    kept = await api.post("spans/search", query, headers={"accept": "application/json;nan=keep"})
    assert b'"a":NaN,"b":[1.5,-Infinity]' in kept.body
