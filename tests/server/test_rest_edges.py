"""What is no ordinary call: wrong paths, methods, bodies and sizes, faults of ours, pages for people, other origins."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.models import Span
from agl_streams.server.app import CONTRACT, EXTENSIONS
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.support import Api, Reply, span_json
from tests.support.raw import ask
from tests.support.servers import Servers
from tests.support.waiting import until

ENQUEUE = "queues/rollouts/enqueue"


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/agl/nope", "/v1/agl/rollouts/a/b/c", "/v1/agl/rollouts/a%2Fb/c", "/x/"]
)
async def test_an_unknown_path_is_404(api: Api, path: str) -> None:
    """What no route matches is not found, also when an escaped slash makes it so."""
    reply = await api.get(path)
    assert (reply.status, reply.json) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "rollouts", "POST"),
        ("DELETE", "rollouts/x", "GET"),
        ("HEAD", "health", "GET"),
        ("GET", "queues/rollouts/enqueue", "POST"),
        ("GET", "rollouts/x/attempts/y", "POST"),
        ("PUT", "resources/latest", "GET"),
        ("GET", "/v1/traces", "POST"),
        ("OPTIONS", "rollouts", "POST"),
    ],
)
async def test_a_wrong_method_is_405(api: Api, method: str, path: str, allowed: str) -> None:
    """The method of the first route that matches the path is told."""
    reply = await api.send(method, path)
    assert (reply.status, reply.headers["allow"]) == (405, allowed)
    if method != "HEAD":
        assert reply.json == {"detail": "Method Not Allowed"}


async def test_a_trailing_slash_leads_to_the_path_without(api: Api) -> None:
    """A known path with a slash behind is redirected, its query kept."""
    reply = await api.send("GET", "/v1/agl/rollouts/?limit=2")
    assert (reply.status, reply.headers["location"], reply.body) == (307, "/v1/agl/rollouts?limit=2", b"")


@pytest.mark.parametrize(
    ("body", "place"), [(b"{", 1), (b'{"rollouts": [}', 14), (b"nope", 0), (b'{"rollouts":["\\ud800"]}', 0)]
)
async def test_bad_json_is_told_with_its_place(api: Api, body: bytes, place: int) -> None:
    """What is no JSON is 422 with the position of the fault."""
    reply = await api.raw(ENQUEUE, body)
    assert reply.status == 422
    (finding,) = reply.detail
    assert (finding["type"], finding["loc"], finding["msg"]) == ("json_invalid", ["body", place], "JSON decode error")
    assert finding["input"] == {}
    assert isinstance(finding["ctx"]["error"], str)


async def test_what_is_not_even_text_is_400(api: Api) -> None:
    """Bytes that are no UTF-8 cannot be parsed."""
    reply = await api.raw(ENQUEUE, b'{"rollouts": "\xff"}')
    assert (reply.status, reply.detail) == (400, "There was an error parsing the body")


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json; charset=utf-8", 201),
        ("application/vnd.api+json", 201),
        ("APPLICATION/JSON", 201),
        ("text/plain", 422),
        ("application/octet-stream", 422),
    ],
)
async def test_json_is_what_says_that_it_is(api: Api, content_type: str, status: int) -> None:
    """A body of a type of JSON is read as JSON, any other is taken as text and does not validate."""
    reply = await api.raw(ENQUEUE, b'{"rollouts":[]}', content_type)
    assert reply.status == status
    if status == 422:
        assert reply.detail[0]["type"] == "model_attributes_type"


async def test_a_body_without_a_type_is_json(api: Api) -> None:
    """A request that names no type of its body is read as JSON."""
    reply = await api.send("POST", ENQUEUE, data=b'{"rollouts":[]}', skip_auto_headers=["content-type"])
    assert reply.status == 201


async def test_every_json_answer_says_so_and_nothing_more(api: Api) -> None:
    """The media type has no charset; the client of the contract refuses any other."""
    for path in ("health", "statistics", "rollouts", "rollouts/x", "nope"):
        assert (await api.get(path)).headers["content-type"] == "application/json"


async def test_a_value_above_its_limit_is_400(settings: Settings) -> None:
    """An input, metadata or span above its limit is refused by name, and nothing is stored."""
    limits = settings.model_copy(update={"max_input_bytes": 100, "max_span_bytes": 1000})
    async with serving(limits) as url, aiohttp.ClientSession(url) as session:
        api = Api(session)
        started = (await api.post("rollouts", {"input": 1})).json
        for body in ({"input": "x" * 200}, {"input": 1, "metadata": {"a": "x" * 200}}):
            reply = await api.post(ENQUEUE, {"rollouts": [{"input": 1}, body]})
            assert (reply.status, reply.headers["x-error"]) == (400, "TooLarge")
            assert "the limit is 100" in reply.detail
        async with await StreamStore.connect(settings=settings) as store:
            attempted: Any = await store.get_rollout_by_id(started["rollout_id"])
        reply = await api.post("spans", span_json(attempted, attributes={"a": "x" * 2000}))
        assert reply.status == 400
        assert "the limit is 1,000" in reply.detail
        assert (await api.get("statistics")).json["total_rollouts"] == 1


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_request_above_its_limit_is_413(settings: Settings, chunked: bool) -> None:
    """A request above the limit is refused, before it is read when it says how long it is, and the server goes on."""
    limits = settings.model_copy(update={"max_request_bytes": 10_000_000})

    async def pieces() -> Any:
        for _ in range(20):
            yield b" " * 1_000_000

    async with serving(limits) as url, aiohttp.ClientSession(url) as session:
        api = Api(session)
        data: Any = pieces() if chunked else io.BytesIO(b" " * 20_000_000)
        reply = await api.send("POST", ENQUEUE, data=data, headers={"content-type": "application/json"})
        assert reply.status == 413
        assert "10,000,000" in reply.detail
        assert (await api.post(ENQUEUE, {"rollouts": []})).status == 201


async def test_too_many_large_requests_at_once_are_put_off(settings: Settings) -> None:
    """What is in memory at once is bounded: a large request beyond that is 503, and welcome once another is done."""
    limits = settings.model_copy(
        update={"max_request_bytes": 1_000_000, "max_input_bytes": 1000, "max_span_bytes": 1000}
    )
    large = b" " * 900_000 + b'{"rollouts":[]}'
    async with serving(limits) as url, aiohttp.ClientSession(url) as session:
        api = Api(session)

        async def answered(status: int) -> Reply | None:
            reply = await api.raw(ENQUEUE, large)
            return reply if reply.status == status else None

        half_sent = [await send_half(url, large) for _ in range(2)]
        reply = await until(lambda: answered(503), what="the server to be full")
        assert reply is not None
        assert reply.headers["retry-after"] == "1"
        for connection in half_sent:
            connection.close()
        await until(lambda: answered(201), what="room for a large request")


async def send_half(url: str, body: bytes) -> asyncio.StreamWriter:
    """A connection over which the first half of a request has gone."""
    _, host, port = url.replace("//", "").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/agl/%b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (ENQUEUE.encode(), len(body)))
    writer.write(body[: len(body) // 2])
    return writer


async def test_a_fault_of_ours_is_told_by_an_id_alone(
    api: Api, direct: StreamStore, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unexpected exception is 500 with an id; the traceback stands in the log under that id and nowhere else."""
    rollout = await direct.enqueue_rollout({"secret": "input"})
    key = f"{direct.functions(0).keys.prefix}rollout:{rollout.rollout_id}"
    ask(direct.url, "HSET", key, "start", "not a number")
    reply = await api.get(f"rollouts/{rollout.rollout_id}")
    assert reply.status == 500
    assert list(reply.json) == ["detail", "error_id"]
    assert reply.json["error_id"] in reply.detail
    for leak in (b"Traceback", b"ValueError", b"secret", b"projections"):
        assert leak not in reply.body
    logged = capfd.readouterr()
    assert reply.json["error_id"] in logged.out + logged.err
    assert "not a number" in logged.out + logged.err


async def test_a_full_store_is_503_and_may_be_tried_again(servers: Servers, settings: Settings) -> None:
    """When the store cannot serve a call now the answer is 503 with Retry-After, and says nothing of the store."""
    redis = servers.start()
    full = settings.model_copy(update={"redis_url": redis.url})
    async with serving(full) as url, aiohttp.ClientSession(url) as session:
        api = Api(session)
        (queued,) = (await api.post(ENQUEUE, {"rollouts": [{"input": 1}]})).json
        redis.execute("CONFIG", "SET", "maxmemory", "1mb")
        reply = await api.post(ENQUEUE, {"rollouts": [{"input": 1}]})
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "maxmemory" not in reply.detail
        assert "unix" not in reply.detail
        assert (await api.post(f"rollouts/{queued['rollout_id']}", {"status": "failed"})).status == 200


async def test_health_and_readiness(api: Api, direct: StreamStore) -> None:
    """The process is alive as long as it answers; it is ready while the store answers and events are folded in time."""
    for path in ("/health", "/v1/agl/health"):
        assert (await api.get(path)).body == b'{"status":"ok"}'
    ready = await api.get("/ready")
    assert ready.json == {"status": "ready", "detail": "", "shards": [{"shard": 0, "lag": 0, "lag_seconds": 0.0}]}
    await direct.enqueue_rollout(1)
    waiting = (await api.get("/ready")).json["shards"][0]
    assert waiting["lag"] == 1
    assert waiting["lag_seconds"] >= 0.0


async def test_a_server_that_nobody_folds_for_is_not_ready(api: Api, direct: StreamStore) -> None:
    """An event that has waited for long to be folded makes the server unready: its aggregator is gone."""
    log = direct.functions(0).keys.log
    ask(direct.url, "XADD", log, "1000-0", "type", "grace", "n", "1", "time", "1000000", "until", "1000000")
    reply = await api.get("/ready")
    assert (reply.status, reply.json["status"]) == (503, "lagging")
    assert reply.json["shards"][0]["lag_seconds"] > 1000


async def test_a_server_whose_store_is_away_is_not_ready(servers: Servers, settings: Settings) -> None:
    """A store that hangs makes the server unready within seconds, while it stays alive."""
    redis = servers.start()
    async with (
        serving(settings.model_copy(update={"redis_url": redis.url})) as url,
        aiohttp.ClientSession(url) as session,
    ):
        api = Api(session)
        assert (await api.get("/ready")).status == 200
        redis.pause()
        reply = await api.get("/ready")
        assert (reply.status, reply.json["status"], reply.json["shards"]) == (503, "unavailable", [])
        assert (await api.get("/health")).status == 200
        redis.resume()


async def test_statistics_have_the_known_names(api: Api) -> None:
    """The counts are there at the moment of the call."""
    await api.post("rollouts", {"input": 1, "worker_id": "w"})
    found = (await api.get("statistics")).json
    assert list(found) == [
        "name", "total_rollouts", "total_attempts", "total_spans", "total_resources", "total_workers", "uptime",
    ]  # fmt: skip
    assert (found["total_rollouts"], found["total_attempts"], found["total_workers"]) == (1, 1, 1)
    assert isinstance(found["uptime"], float)


async def test_the_document_describes_every_route(api: Api) -> None:
    """The OpenAPI document has each route with its method, status and parameters, and says what is an extension."""
    document = (await api.get("/openapi.json")).json
    assert (await api.get("openapi.json")).json == document
    assert document["openapi"].startswith("3.1")
    for route in (*CONTRACT, *EXTENSIONS):
        described = document["paths"][route.path][route.method.lower()]
        assert str(route.status) in described["responses"], route.path
        assert ("requestBody" in described) == (route.body is not None or route.path == "/v1/traces"), route.path
        named = {one["name"] for one in described.get("parameters", []) if one["in"] == "path"}
        assert named == {part.strip("{}") for part in route.path.split("/") if part.startswith("{")}
        assert described["summary"].endswith("(extension)") == route.ours
    spans = document["paths"]["/v1/agl/spans"]["get"]["parameters"]
    assert [(one["name"], one["required"]) for one in spans if one["name"] == "rollout_id"] == [("rollout_id", True)]
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(set(operations)) == len(operations)


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_the_document_has_pages_for_people(api: Api, path: str) -> None:
    """A browser is shown the document."""
    reply = await api.get(path)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/openapi.json" in reply.body


async def test_pages_of_other_origins_may_call_only_when_allowed(api: Api, settings: Settings) -> None:
    """Without origins there are no CORS headers; with them, an allowed one is named and preflights are answered."""
    origin = {"origin": "http://a"}
    assert "access-control-allow-origin" not in (await api.get("health", headers=origin)).headers
    async with serving(settings, cors_origins=("http://a",)) as url, aiohttp.ClientSession(url) as session:
        cors = Api(session)
        allowed = (await cors.get("health", headers=origin)).headers
        assert (allowed["access-control-allow-origin"], allowed["vary"]) == ("http://a", "Origin")
        assert allowed["access-control-expose-headers"] == "*"
        other = (await cors.get("health", headers={"origin": "http://b"})).headers
        assert "access-control-allow-origin" not in other
        asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "x-y"}
        preflight = await cors.send("OPTIONS", "rollouts", headers=asked)
        assert (preflight.status, preflight.body) == (200, b"OK")
        refused = await cors.send("OPTIONS", "rollouts", headers={**asked, "origin": "http://b"})
        assert (refused.status, refused.body) == (400, b"Disallowed CORS origin")


def bad_span(**changes: Any) -> dict[str, Any]:
    """A span of nobody, with something wrong in it."""
    context: dict[str, Any] = {"trace_id": "t", "span_id": "s", "is_remote": False, "trace_state": {}}
    span = Span.from_attributes(attributes={}, rollout_id="ro-x", attempt_id="at-x")
    return json.loads(span.to_json()) | {"context": context} | changes


MANY = range(20_000)
WRONG_SPANS: list[dict[str, Any]] = [
    bad_span(attributes={str(n): {} for n in MANY}),
    bad_span(attributes={str(n): [1, [n]] for n in MANY}),
    bad_span(events=[{} for _ in MANY]),
    bad_span(links=[{"context": None} for _ in MANY]),
    bad_span(events=[{"name": "e", "attributes": {str(n): None for n in MANY}}]),
    bad_span(resource={"attributes": {str(n): {} for n in MANY}, "schema_url": ""}),
    bad_span(context={**bad_span()["context"], "trace_state": {str(n): n for n in MANY}}),
]


@pytest.mark.parametrize("span", WRONG_SPANS, ids=range(len(WRONG_SPANS)))
async def test_a_thousand_faults_are_told_by_a_few(api: Api, span: dict[str, Any]) -> None:
    """However much is wrong with a span, singly or in bulk, the answer is 422, and short."""
    for reply in (await api.post("spans", span), await api.post("spans/batch", {"spans": [span, span]})):
        assert reply.status == 422
        assert 0 < len(reply.detail) <= 50
        assert len(reply.body) < 100_000


async def test_a_large_span_that_is_right_is_stored_whole(api: Api, direct: StreamStore) -> None:
    """What is cut down is only what is wrong: thousands of proper attributes all arrive."""
    attempted = await direct.start_rollout(1)
    attributes: dict[str, Any] = {str(n): [n, n] for n in range(3000)}
    assert (await api.post("spans", span_json(attempted, attributes=attributes))).status == 201
    (stored,) = await direct.query_spans(attempted.rollout_id)
    assert stored.attributes == attributes


async def test_other_lists_of_wrong_things_are_told_by_a_few(api: Api) -> None:
    """A huge list of wrong rollouts, ids or rules is told by its first, and too many resources by their number."""
    wrong: list[tuple[str, dict[str, Any]]] = [
        (ENQUEUE, {"rollouts": [{}] * 20_000}),
        (ENQUEUE, {"rollouts": [{"input": 1, "config": {"retry_condition": [0] * 20_000}}]}),
        ("rollouts/search", {"rollout_id_in": [0] * 20_000}),
        ("waits/rollouts", {"rollout_ids": [None] * 20_000}),
    ]
    for path, body in wrong:
        reply = await api.post(path, body)
        assert (reply.status, len(reply.detail)) == (422, 1)
        assert len(reply.body) < 10_000
    many = await api.post("resources", {str(n): {} for n in MANY})
    assert (many.status, many.detail) == (400, "a bundle has at most 1000 resources, got 20,000")
