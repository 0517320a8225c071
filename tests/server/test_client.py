"""The client: the API, answers and errors of the store, from any loop and process, and what it does about cuts."""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from structlog.testing import capture_logs

from agl_streams import errors
from agl_streams.client import HttpRolloutConsumer, StoreClient, transport
from agl_streams.config import Settings
from agl_streams.connect import connect, consumer_of
from agl_streams.consumer import RolloutConsumer
from agl_streams.models import (
    LLM,
    EnqueueRolloutRequest,
    NamedResources,
    PromptTemplate,
    RolloutConfig,
    Span,
)
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.standin import Standin, standin_server
from tests.support.waiting import until

BESIDE_THE_STORE = {
    "connect", "close", "functions", "functions_of", "fold_once", "expire_once", "retire_workers_once",
    "finished_counts", "encoded", "append_encoded",
}  # fmt: skip
"""What only a process beside the engine can do or needs."""


@pytest.fixture
async def client(server_url: str, settings: Settings) -> AsyncGenerator[StoreClient]:
    """A client of the server."""
    async with await StoreClient.connect(server_url, settings=settings) as client:
        yield client


def public_methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(function)
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in BESIDE_THE_STORE
    }


def test_the_client_has_every_method_of_the_store() -> None:
    """Each public method of the store is there, with the same parameters, kinds and defaults."""
    ours = public_methods(StoreClient)
    for name, signature in public_methods(StreamStore).items():
        mine = ours[name].parameters
        for parameter in signature.parameters.values():
            assert mine[parameter.name].kind == parameter.kind, f"{name}: {parameter.name}"
            assert mine[parameter.name].default == parameter.default, f"{name}: {parameter.name}"


async def test_a_rollout_goes_its_way_over_http(client: StoreClient, store: StreamStore) -> None:
    """From enqueue to the end, the client's answers are what the store says."""
    config = RolloutConfig(max_attempts=2, retry_condition=["failed"], timeout_seconds=60)
    queued = await client.enqueue_rollout({"q": "é"}, mode="train", config=config, metadata={"a": 1})
    assert queued == await store.get_rollout_by_id(queued.rollout_id)
    taken = await client.dequeue_rollout("w", lease_seconds=30)
    assert taken is not None
    assert taken == await store.get_rollout_by_id(queued.rollout_id)
    rollout_id, attempt_id = taken.rollout_id, taken.attempt.attempt_id
    assert await client.admit_call(rollout_id, attempt_id) == 1
    spans = [
        Span.from_attributes(attributes={"x": math.nan if n else 1.0}, rollout_id=rollout_id, attempt_id=attempt_id)
        for n in range(3)
    ]
    stored = await client.add_many_spans(spans, assign_sequence=True)
    assert [span.sequence_id for span in stored] == [2, 3, 4]
    assert await client.add_span(spans[0]) is None
    single = await client.add_span(
        Span.from_attributes(attributes={}, rollout_id=rollout_id, attempt_id=attempt_id), assign_sequence=True
    )
    assert single is not None
    assert single.sequence_id == 5
    found = await client.query_spans(rollout_id, "latest", sort_order="desc")
    assert [span.to_json() for span in found] == [
        span.to_json() for span in await store.query_spans(rollout_id, sort_order="desc")
    ]
    assert {span.span_id async for span in client.iter_spans(rollout_id, attempt_id)} == {one.span_id for one in found}
    assert await client.renew_attempts([(rollout_id, attempt_id), ("ro-x", "at-x")]) == ["renewed", "not_found_attempt"]
    failed = await client.update_attempt(rollout_id, attempt_id, status="failed", metadata={"m": 1}, reason="why")
    assert failed == await store.get_latest_attempt(rollout_id)
    again = await client.start_attempt(rollout_id, "w")
    assert [one.sequence_id for one in await client.query_attempts(rollout_id, sort_order="desc")] == [2, 1]
    cancelled = await client.cancel_rollout(rollout_id, "enough")
    assert cancelled.status == "cancelled"
    assert await client.renew_attempt(rollout_id, again.attempt.attempt_id) == "ended"
    assert (await client.update_rollout(rollout_id, metadata=None, input=[1])).input == [1]
    await client.settle()
    assert await client.rollout_sums(rollout_id) == await store.rollout_sums(rollout_id)
    assert (await client.attempt_sums(rollout_id, attempt_id)).spans == 4
    assert (await client.statistics())["total_spans"] == 4


async def test_queries_give_the_pages_of_the_store(client: StoreClient, store: StreamStore) -> None:
    """Every query answers as the store does, filters, sorting and paging included."""
    await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=number) for number in range(5)])
    started = await client.start_rollout("x", worker_id="w/1 é")
    bundle: NamedResources = {"m": LLM(endpoint="e", model="m"), "p": PromptTemplate(template="t", engine="jinja")}
    added = await client.add_resources(bundle)
    assert await client.update_resources(added.resources_id, bundle) == await client.get_latest_resources()
    await client.update_worker("w/1 é", {"n": 1})
    one: dict[str, Any] = {"sort_by": "start_time", "sort_order": "desc", "limit": 2, "offset": 1}
    assert await client.query_rollouts(status_in=["queuing"], **one) == await store.query_rollouts(
        status_in=["queuing"], **one
    )
    assert await client.query_rollouts(rollout_id_in=[]) == await store.query_rollouts(rollout_id_in=[])
    assert await client.query_resources(resources_id=added.resources_id) == await store.query_resources()
    assert await client.query_workers(status_in=["busy"]) == await store.query_workers()
    assert await client.get_worker_by_id("w/1 é") == await store.get_worker_by_id("w/1 é")
    assert await client.get_resources_by_id(added.resources_id) == await store.get_resources_by_id(added.resources_id)
    assert await client.get_rollout_by_id(started.rollout_id) == started
    assert await client.get_rollout_by_id("ro-x") is None
    assert await client.get_latest_attempt("ro-x") is None
    assert await client.get_worker_by_id("nobody") is None
    assert await client.get_many_span_sequence_ids([("a", "b"), ("a", "b")]) == [1, 2]
    assert await client.get_next_span_sequence_id("a", "b") == 3


async def test_a_span_of_the_sdk_is_stored(client: StoreClient, store: StreamStore) -> None:
    """A finished span of OpenTelemetry's SDK goes through the client as through the store."""
    started = await store.start_rollout(1)
    span: Any = TracerProvider().get_tracer("t").start_span("work", attributes={"a": (1, 2)})
    span.end()
    stored = await client.add_otel_span(started.rollout_id, started.attempt.attempt_id, span)
    assert [stored] == list(await store.query_spans(started.rollout_id))
    assert await client.add_otel_span(started.rollout_id, started.attempt.attempt_id, span, 9) is None


async def test_errors_are_those_of_the_store(client: StoreClient) -> None:
    """What the store raises the client raises, as the same class; bad values are refused before they are sent."""
    started = await client.start_rollout(1)
    ids = (started.rollout_id, started.attempt.attempt_id)
    await client.update_attempt(*ids, status="succeeded")
    with pytest.raises(errors.AttemptEnded):
        await client.admit_call(*ids)
    other = await client.start_rollout(2)
    await client.start_attempt(other.rollout_id)
    with pytest.raises(errors.Superseded):
        await client.admit_call(other.rollout_id, other.attempt.attempt_id)
    with pytest.raises(errors.NotFound, match="ro-x"):
        await client.update_rollout("ro-x", mode="val")
    with pytest.raises(errors.InvalidRequest, match="Invalid sort_by: nope"):
        await client.query_rollouts(sort_by="nope")
    with pytest.raises(errors.InvalidRequest, match=r"body\.status"):
        await client.update_attempt(*ids, status="lost")
    with pytest.raises(errors.InvalidRequest, match="only finite numbers are JSON"):
        await client.enqueue_rollout({"x": math.nan})
    with pytest.raises(errors.InvalidRequest, match="timeout"):
        await client.wait_for_rollouts(rollout_ids=[], timeout=math.nan)
    small = StoreClient(client.url, client.settings.model_copy(update={"max_input_bytes": 10, "max_span_bytes": 10}))
    with pytest.raises(errors.TooLarge):
        await small.enqueue_rollout("x" * 20)
    with pytest.raises(errors.TooLarge):
        await small.add_span(Span.from_attributes(attributes={}))


async def test_waiting_is_pushed(client: StoreClient, store: StreamStore) -> None:
    """A waiter hears of the end when it comes; time runs out, unknown and doubled ids are handled as in the store."""
    a, b = [await store.start_rollout(number) for number in range(2)]
    ids = [b.rollout_id, "ro-x", a.rollout_id, b.rollout_id]
    assert await client.wait_for_rollouts(rollout_ids=ids, timeout=0) == []
    waiting = asyncio.create_task(client.wait_for_rollouts(rollout_ids=ids))
    await store.update_rollout(a.rollout_id, status="succeeded")
    assert [one.rollout_id for one in await client.wait_for_rollouts(rollout_ids=ids, timeout=0.05)] == [a.rollout_id]
    await store.update_rollout(b.rollout_id, status="failed")
    assert [one.rollout_id for one in await waiting] == [b.rollout_id, a.rollout_id, b.rollout_id]
    assert await client.wait_for_rollouts(rollout_ids=["ro-x"]) == []


async def test_a_consumer_waits_for_work(client: StoreClient, store: StreamStore, settings: Settings) -> None:
    """A runner's consumer over HTTP gets work when it comes, begun under a lease, as many as it has places."""
    consumer = consumer_of(client, "w")
    assert isinstance(consumer, HttpRolloutConsumer)
    waiting = asyncio.create_task(consumer.next(2))
    queued = await store.enqueue_rollout(1)
    (taken,) = await waiting
    assert (taken.rollout_id, taken.attempt.worker_id) == (queued.rollout_id, "w")
    assert (await store.expire_once(0)).next_deadline_us is not None
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=number) for number in range(3)])
    assert [one.input for one in await consumer.next(2)] == [0, 1]
    assert await consumer.next(0) == []
    await consumer.close()
    assert await consumer.next(1) == []
    beside = consumer_of(store, "v")
    assert isinstance(beside, RolloutConsumer)
    await beside.close()


async def test_a_stopped_consumer_returns_at_once(client: StoreClient, store: StreamStore) -> None:
    """Stopping ends the pending wait without taking anything, and work that comes later goes to others."""
    consumer = HttpRolloutConsumer(client, "w")
    waiting = asyncio.create_task(consumer.next(1))
    await until(lambda: client_is_waiting(store), what="the server to wait for work")
    await consumer.stop()
    assert await waiting == []
    await store.enqueue_rollout(1)
    assert await store.dequeue_rollout() is not None


async def client_is_waiting(store: StreamStore) -> bool:
    info: Any = await store.connection.execute("INFO", "clients")
    return b"blocked_clients:0" not in info


async def test_the_log_is_followed(client: StoreClient, store: StreamStore) -> None:
    """The client's tail gives the events of the log from any place on, filtered as asked."""
    made = [(await store.enqueue_rollout(number)).rollout_id for number in range(3)]
    tail = client.tail("0", types=["rollout_enqueued"])
    heard = [await anext(tail) for _ in range(3)]
    assert [event.fields["rollout"] for event in heard] == made
    await tail.aclose()
    later = client.tail(heard[0].cursor, rollout_ids=made[2:])
    event = await anext(later)
    assert (event.type, event.n, event.shard, event.fields["rollout"]) == ("rollout_enqueued", 3, 0, made[2])
    await later.aclose()
    with pytest.raises(errors.InvalidRequest, match="no place"):
        await anext(client.tail("x"))


async def test_the_log_is_followed_across_a_restart(settings: Settings, store: StreamStore) -> None:
    """A tail whose server stops goes on at the next one, and misses and repeats nothing."""
    async with serving(settings) as url:
        client = StoreClient(url, settings)
        tail = client.tail("0")
        first = await store.enqueue_rollout(1)
        heard = [await anext(tail)]
    second = await store.enqueue_rollout(2)
    hearing = asyncio.ensure_future(anext(tail))
    async with serving(settings, port=int(url.rpartition(":")[2])):
        heard.append(await hearing)
        assert [event.fields["rollout"] for event in heard] == [first.rollout_id, second.rollout_id]
        await tail.aclose()
    await client.close()


async def test_connect_gives_the_fitting_store(server_url: str, settings: Settings) -> None:
    """The scheme of the URL decides; a namespace cannot be chosen behind a server."""
    for url, kind in ((server_url, StoreClient), (settings.redis_url, StreamStore), (None, StreamStore)):
        async with await connect(url, settings=settings) as store:
            assert isinstance(store, kind)
            await store.enqueue_rollout(1)
    with pytest.raises(errors.ConfigError, match="cannot be chosen"):
        await connect(server_url, settings=settings, namespace="other")
    async with await connect(settings.redis_url, settings=settings, namespace="other") as store:
        assert (await store.statistics())["total_rollouts"] == 0


async def test_a_pickled_client_works(client: StoreClient) -> None:
    """A client travels to another process as its address and settings."""
    copy: StoreClient = pickle.loads(pickle.dumps(client))
    async with copy:
        assert copy.url == client.url
        assert (await copy.statistics())["total_rollouts"] == 0


async def test_each_event_loop_has_connections_of_its_own(client: StoreClient) -> None:
    """One client serves several event loops in several threads."""

    async def elsewhere() -> str:
        async with client:
            return (await client.enqueue_rollout(1)).rollout_id

    made = await asyncio.gather(*(asyncio.to_thread(asyncio.run, elsewhere()) for _ in range(3)))
    assert len(await client.query_rollouts(rollout_id_in=made)) == 3


async def test_capabilities_and_endpoint(client: StoreClient) -> None:
    """The client can do all four things, and says where traces go."""
    assert client.capabilities == dict.fromkeys(["thread_safe", "async_safe", "zero_copy", "otlp_traces"], True)
    assert client.otlp_traces_endpoint() == f"{client.url}/v1/traces"


async def test_nobody_at_the_address_is_told(settings: Settings) -> None:
    """Where nobody listens, or somebody else, connecting says so."""
    async with standin_server() as standin:
        standin.answer(web.Response(text="<html>", content_type="text/html"))
        with pytest.raises(errors.ServerRefused, match="is it the address"):
            await StoreClient.connect(standin.url, settings=settings)
        standin.answer(web.Response(status=404))
        with pytest.raises(errors.ServerRefused, match="has no /v1/agl/health: is it the address"):
            await StoreClient.connect(f"{standin.url}/v1/agl", settings=settings)


async def test_what_is_waited_for_is_said_at_once(settings: Settings) -> None:
    """The first failure is logged with the address, before any repeat, and so is the first answer after it."""
    async with standin_server() as standin:
        url = standin.url.replace("//", "//me:secret@")
        async with StoreClient(url, settings) as client:
            standin.answer(Standin.cut, Standin.cut, web.json_response({}), web.json_response({}))
            with capture_logs() as logged:
                await client.statistics()
                await client.statistics()
    told = [(one["event"], one["url"]) for one in logged if one["log_level"] != "debug"]
    masked = url.replace("secret", "***")
    assert told == [("server_away", masked), ("server_back", masked)]
    assert logged[0]["event"] == "server_away"
    assert "secret" not in str(logged)


async def test_a_server_that_stays_away_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nobody has listened for as long as requests are repeated, the error has the address and the reason."""
    monkeypatch.setattr(transport, "REPEAT_FOR_S", 0.1)
    with pytest.raises(errors.StoreUnavailable) as caught:
        await StoreClient.connect("http://127.0.0.1:9", settings=settings)
    assert str(caught.value).startswith("cannot reach http://127.0.0.1:9: ")
    assert str(caught.value).endswith("Is the server running?")
    assert "ssl:" not in str(caught.value)


async def test_a_server_that_never_answers_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes connections and says nothing holds a call no longer than its time: every call has one."""
    monkeypatch.setattr(transport, "ANSWER_S", 0.05)
    monkeypatch.setattr(transport, "REPEAT_FOR_S", 0.05)
    connections: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    async with StoreClient(f"http://{host}:{port}", settings) as client:
        for call in (
            client.statistics(),
            client.enqueue_rollout(1),
            client.dequeue_many_rollouts(wait_seconds=0.05),
            client.wait_for_rollouts(rollout_ids=["ro-1"], timeout=0.05),
            client.update_rollout("ro-1", status="queuing"),
        ):
            with pytest.raises(errors.StoreUnavailable, match="cannot reach"):
                await call
        with capture_logs() as logged:
            tail = client.tail()
            waiting = asyncio.ensure_future(anext(tail))
            await until(lambda: any(one["event"] == "tail_interrupted" for one in logged), what="the tail to try again")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await tail.aclose()
    for writer in connections:
        writer.close()
    silent.close()
    await silent.wait_closed()


async def test_a_request_is_repeated_under_its_key(settings: Settings) -> None:
    """After a cut, and while a server or proxy cannot serve, the same request is sent again, marked as a repeat."""
    async with standin_server() as standin, StoreClient(standin.url, settings) as client:
        standin.answer(Standin.cut, web.Response(status=502), web.Response(status=503), web.json_response([]))
        assert await client.dequeue_rollout() is None
        assert len({request.headers["Idempotency-Key"] for request in standin.requests}) == 1
        assert ["Idempotency-Repeat" in request.headers for request in standin.requests] == [False, True, True, True]
        assert len(set(standin.bodies)) == 1


async def test_an_enqueue_names_its_rollouts_before_it_is_sent(settings: Settings) -> None:
    """A repeated enqueue carries the ids of the first try, so nothing is enqueued twice."""
    async with standin_server() as standin, StoreClient(standin.url, settings) as client:
        standin.answer(Standin.cut, web.json_response({"detail": "no"}, status=400))
        with pytest.raises(errors.InvalidRequest):
            await client.enqueue_rollout(1)
        assert len(set(standin.bodies)) == 1
        assert b'"rollout_id":"ro-' in standin.bodies[0]


async def test_what_could_be_done_twice_is_not_repeated(settings: Settings) -> None:
    """Putting a rollout back on the queue is sent once when its answer is lost; other updates are repeated."""
    async with standin_server() as standin, StoreClient(standin.url, settings) as client:
        standin.answer(Standin.cut)
        with pytest.raises(errors.StoreUnavailable):
            await client.update_rollout("ro-1", status="queuing")
        assert len(standin.requests) == 1
        standin.answer(Standin.cut, web.json_response({"detail": "gone"}, status=404))
        with pytest.raises(errors.NotFound, match="gone"):
            await client.update_rollout("ro-1", status="failed")
        assert len(standin.requests) == 3


async def test_a_fault_of_the_server_is_not_repeated(settings: Settings) -> None:
    """Status 500 is a fault that a repeat would meet again: it is raised with what the server says."""
    async with standin_server() as standin, StoreClient(standin.url, settings) as client:
        standin.answer(web.json_response({"detail": "error 123", "error_id": "123"}, status=500))
        with pytest.raises(errors.CommandFailed, match="error 123"):
            await client.statistics()
        standin.answer(web.json_response({"detail": "x"}, status=400, headers={"X-Error": "os"}))
        with pytest.raises(errors.InvalidRequest):
            await client.statistics()
