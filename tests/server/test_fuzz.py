"""Anything may come in at any route: it is answered, never by a fault of ours."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import aiohttp
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agl_streams.config import Settings
from agl_streams.models import Span
from agl_streams.server.app import CONTRACT, EXTENSIONS
from agl_streams.server.table import Route
from tests.server.conftest import serving
from tests.server.support import Api

ENDLESS = {"/v1/agl/events", "/v1/agl/waits/rollouts"}
"""Routes whose answer may take for ever; tested elsewhere."""
ROUTES = [route for route in (*CONTRACT, *EXTENSIONS) if route.path not in ENDLESS]
KNOWN = {
    "rollout_id": "ro-known", "attempt_id": "latest", "limit": 2, "offset": 0, "sort_by": "start_time",
    "sort_order": "desc", "filter_logic": "or", "status": "running", "worker_id": "w", "mode": "val",
    "status_in": ["queuing"], "resource_type": "llm", "reason": "r", "lease_seconds": 0.5,
    "rollouts": [{"input": 1, "rollout_id": "ro-known"}],
    "spans": [json.loads(Span.from_attributes(attributes={}).to_json())],
    "attempts": [{"rollout_id": "ro-known", "attempt_id": "at-x"}], "config": {"max_attempts": 2}, "metadata": {"a": 1},
}  # fmt: skip
"""Values that pass for a field, so that some requests come far."""

FuzzRequest: TypeAlias = tuple[Route, list[str], str, dict[str, str], bytes]

TEXT = st.text(max_size=6) | st.sampled_from(["ro-known", "latest", "search", "NaN", "-1", "\x00", "é", "a/b"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXT, below, max_size=3),
    max_leaves=5,
)


def fields_of(model: Any) -> list[str]:
    if isinstance(model, type) and issubclass(model, BaseModel):
        return list(model.model_fields)
    return ["a", "resource_type"]


def fields(model: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields of a model, with values that pass or any others."""
    value = {name: JSON | st.just(KNOWN[name]) if name in KNOWN else JSON for name in fields_of(model)}
    return st.fixed_dictionaries({}, optional=value)


LINE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=6)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(["application/json", "text/plain", "application/x-protobuf", "a+json"]) | LINE,
        "content-encoding": st.sampled_from(["gzip", "deflate"]) | LINE,
        "accept": st.just("application/json;nan=keep") | LINE,
        "accept-encoding": st.just("gzip;q=x") | LINE,
        "idempotency-key": st.sampled_from(["k", "x" * 300]) | LINE,
        "idempotency-repeat": LINE,
    },
)


def request_to(route: Route) -> st.SearchStrategy[FuzzRequest]:
    """A request: its route, ids, query, headers and body."""
    ids = st.lists(TEXT.filter(bool), min_size=route.path.count("{"), max_size=route.path.count("{"))
    query = st.just("") if route.query is None else fields(route.query).map(lambda found: urlencode(found, doseq=True))
    body = fields(route.body) | JSON if route.body is not None else JSON
    raw = body.map(lambda found: json.dumps(found).encode()) | st.binary(max_size=20)
    return st.tuples(st.just(route), ids, query.filter(encodable) | st.text("&=%a", max_size=5), HEADERS, raw)


def encodable(text: str) -> bool:
    return text.isascii()


UNHEALTHY = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
REQUESTS = st.lists(st.sampled_from(ROUTES).flatmap(request_to), min_size=10, max_size=40)


@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=UNHEALTHY)
@given(requests=REQUESTS)
def test_whatever_comes_in_is_no_fault_of_ours(settings: Settings, requests: list[FuzzRequest]) -> None:
    """Random ids, queries, headers and bodies, sent to every route in any order, are never answered 500 or worse."""

    async def run() -> None:
        at_once = settings.model_copy(update={"dequeue_wait_seconds": 0.0})
        async with serving(at_once) as url, aiohttp.ClientSession(url, auto_decompress=False) as session:
            api = Api(session)
            for route, ids, query, headers, body in requests:
                names = iter(ids)
                parts = [
                    quote(next(names), safe="") if part.startswith("{") else part for part in route.path.split("/")
                ]
                sent: dict[str, Any] = {"data": body} if route.method == "POST" else {}
                headers = {"content-type": "application/json", **headers}
                place = "/".join(parts) + (f"?{query}" if query else "")
                reply = await api.send(route.method, place, headers=headers, **sent)
                allowed = {501} if route.status == 501 else set[int]()
                assert reply.status < 500 or reply.status in allowed, (route.path, ids, query, headers, body, reply)

    asyncio.run(run())
