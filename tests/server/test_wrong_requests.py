"""Unknown ids, wrong types, nulls, NaN and huge bodies at every route: the documented answer, and nothing stored."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.models import AttemptedRollout
from agl_streams.server.app import CONTRACT, EXTENSIONS
from agl_streams.server.schemas import PageFields
from agl_streams.server.table import Route
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.support import Api, Reply, pairs, span_json

ROUTES = (*CONTRACT, *EXTENSIONS)
WITH_BODY = [route for route in ROUTES if route.body is not None]
(TRACES,) = [route for route in CONTRACT if route.path == "/v1/traces"]
LIMIT_BYTES = 500_000
OURS = (b"Traceback", b".py", b"agl:{", b"valkey", b"redis", b"unix://", b"pydantic")
"""What a caller learns nothing of."""

NULL: tuple[int, Any] = (200, None)
NO_PAGE: tuple[int, Any] = (200, [])
GONE: tuple[int, Any] = (404, "there is no")
UNKNOWN: dict[str, tuple[int, Any]] = {
    "GET /v1/agl/rollouts/{rollout_id}": NULL,
    "POST /v1/agl/rollouts/{rollout_id}": GONE,
    "POST /v1/agl/rollouts/{rollout_id}/attempts": GONE,
    "GET /v1/agl/rollouts/{rollout_id}/attempts": NO_PAGE,
    "POST /v1/agl/rollouts/{rollout_id}/attempts/search": NO_PAGE,
    "GET /v1/agl/rollouts/{rollout_id}/attempts/latest": NULL,
    "POST /v1/agl/rollouts/{rollout_id}/attempts/{attempt_id}": GONE,
    "GET /v1/agl/workers/{worker_id}": NULL,
    "GET /v1/agl/resources/{resources_id}": NULL,
    "POST /v1/agl/rollouts/{rollout_id}/cancel": GONE,
    "GET /v1/agl/rollouts/{rollout_id}/sums": GONE,
    "POST /v1/agl/rollouts/{rollout_id}/attempts/{attempt_id}/renew": (200, {"outcome": "not_found_attempt"}),
    "POST /v1/agl/rollouts/{rollout_id}/attempts/{attempt_id}/admit": GONE,
    "GET /v1/agl/rollouts/{rollout_id}/attempts/{attempt_id}/sums": GONE,
    "GET /v1/agl/dead/{rollout_id}": NULL,
    "POST /v1/agl/dead/{rollout_id}/requeue": GONE,
    "POST /v1/agl/dead/{rollout_id}/drop": GONE,
}
MADE = {"POST /v1/agl/workers/{worker_id}", "POST /v1/agl/resources/{resources_id}"}
"""Where an id that is not known becomes known."""


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def place_of(route: Route) -> str:
    """The path of a route with ids that nobody has."""
    return "/".join("nobody" if part.startswith("{") else part for part in route.path.split("/"))


@pytest.fixture
async def api(settings: Settings, store: StreamStore) -> AsyncGenerator[Api]:
    """A server with a low limit; when the test is over, nothing has been stored and nothing told of its inside."""
    small = {"max_request_bytes": LIMIT_BYTES, "max_input_bytes": 100_000, "max_span_bytes": 100_000}
    limits = settings.model_copy(update={**small, "dequeue_wait_seconds": 0.0})
    before = counts(await store.statistics())
    async with serving(limits) as url, aiohttp.ClientSession(url) as session:
        yield Api(session)
        assert counts(await store.statistics()) == before


def counts(statistics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in statistics.items() if name.startswith("total_")}


def told(reply: Reply, status: int) -> Any:
    """The body of an answer of a status, in which nothing of ours stands."""
    assert reply.status == status, reply
    assert [word for word in OURS if word in reply.body] == []
    return reply.json


def test_every_route_with_an_id_is_in_the_table() -> None:
    """Whoever adds a route says what it answers to an unknown id."""
    assert {name_of(route) for route in ROUTES if "{" in route.path} == UNKNOWN.keys() | MADE


@pytest.mark.parametrize("name", UNKNOWN)
async def test_an_unknown_id_has_its_answer(api: Api, name: str) -> None:
    """What is read is null or an empty page, what is to be changed is 404 with a text."""
    (route,) = [route for route in ROUTES if name_of(route) == name]
    body = {"reason": "r"} if route.body is not None else None
    options: dict[str, Any] = {} if body is None else {"json": body}
    status, expected = UNKNOWN[name]
    found = told(await api.send(route.method, place_of(route), **options), status)
    if status == 404:
        assert expected in found["detail"]
    else:
        assert (found["items"] if isinstance(found, dict) and "items" in found else found) == expected


@pytest.mark.parametrize("route", WITH_BODY, ids=name_of)
async def test_a_body_of_another_shape_is_422(api: Api, route: Route) -> None:
    """A number, a text, a list and half of an object are told with their place; so is null where a body is needed."""
    wrong = [b"5", b'"x"', b"[1]", b"true", b"{", b"NaN", *([b"null", b""] if route.body_required else [])]
    for body in wrong:
        findings = told(await api.raw(place_of(route), body), 422)["detail"]
        assert {finding["loc"][0] for finding in findings} == {"body"}, body


@pytest.mark.parametrize("route", [*WITH_BODY, TRACES], ids=name_of)
async def test_a_huge_body_is_413(api: Api, route: Route) -> None:
    """A body above the limit is refused by every route that reads one, whatever it says."""
    body = b'{"a":"%b"}' % (b"x" * LIMIT_BYTES)
    reply = await api.raw(place_of(route), body, headers={"accept-encoding": "identity"})
    assert f"{LIMIT_BYTES:,}" in json.dumps(told(reply, 413))


PAGED = [
    route
    for route in ROUTES
    if any(isinstance(model, type) and issubclass(model, PageFields) for model in (route.query, route.body))
]


@pytest.mark.parametrize("route", PAGED, ids=name_of)
async def test_a_page_that_cannot_be_is_refused(api: Api, route: Route) -> None:
    """On every route with pages a bad limit, offset or field is 400 in the contract's words, a wrong type 422."""

    async def asked(**page: Any) -> Reply:
        page = {"rollout_id": "nobody", **page}
        options = {"params": pairs(page)} if route.method == "GET" else {"json": page}
        return await api.send(route.method, place_of(route), **options)

    for limit in (0, -2):
        detail = told(await asked(limit=limit), 400)["detail"]
        assert detail == "Limit must be greater than 0 or -1 for no limit"
    assert told(await asked(offset=-1), 400)["detail"] == "Offset must be greater than or equal to 0"
    assert told(await asked(sort_by="nope"), 400)["detail"].startswith("Invalid sort_by: nope, allowed fields are: ")
    for wrong in ({"limit": "x"}, {"offset": "1.5"}, {"sort_order": "up"}):
        told(await asked(**wrong), 422)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("queues/rollouts/dequeue", '{"lease_seconds": NaN}', 400),
        ("queues/rollouts/dequeue", '{"limit": NaN}', 422),
        ("queues/rollouts/dequeue", '{"limit": null}', 422),
        ("rollouts/nobody/attempts", '{"lease_seconds": Infinity}', 400),
        ("rollouts", '{"input": 1, "config": {"timeout_seconds": NaN, "max_attempts": null}}', 422),
        ("rollouts", '{"input": 1, "worker_id": 5}', 422),
        ("queues/rollouts/enqueue", '{"rollouts": [{"input": 1}, {"input": 1, "metadata": []}]}', 422),
        ("queues/rollouts/enqueue", '{"rollouts": [{"input": 1}, {"input": 1, "rollout_id": "a b"}]}', 400),
        ("queues/rollouts/enqueue", '{"rollouts": [{"input": 1, "mode": "none"}]}', 422),
        ("waits/rollouts", '{"rollout_ids": ["nobody"], "timeout": NaN}', 400),
        ("waits/rollouts", '{"rollout_ids": "nobody"}', 422),
        ("leases/renew", '{"attempts": [{"rollout_id": "a", "attempt_id": "b"}], "lease_seconds": NaN}', 400),
        ("workers/w%00", "{}", 400),
        ("resources", '{"a": null}', 422),
        ("resources", '{"a": {"resource_type": "llm", "endpoint": "e", "model": null}}', 422),
        ("spans/next", '{"rollout_id": null, "attempt_id": "a"}', 422),
    ],
)  # fmt: skip
async def test_a_value_that_cannot_be_is_refused(api: Api, path: str, body: str, status: int) -> None:
    """NaN where a number is needed, null and other types where they may not be, ids of another form: all refused."""
    told(await api.raw(path, body.encode()), status)


@pytest.fixture
async def attempted(store: StreamStore) -> AttemptedRollout:
    """A rollout with an open attempt."""
    return await store.start_rollout(1)


async def test_a_span_of_nobody_stores_nothing(attempted: AttemptedRollout, api: Api) -> None:
    """A span of an unknown rollout is 404, singly and before a good one in a batch, of which none is stored."""
    nobody = span_json(attempted, rollout_id="nobody")
    told(await api.post("spans", nobody), 404)
    told(await api.post("spans/batch", {"spans": [nobody, span_json(attempted)]}), 404)
