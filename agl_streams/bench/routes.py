"""The routes of the HTTP server that runners, trainers and exporters use all the time, one by one."""

from __future__ import annotations

import json
import os
import secrets
from typing import Any, Final, NamedTuple

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agl_streams import clock, semconv
from agl_streams.bench.report import MS_PER_S, US_PER_S, Row, quantile
from agl_streams.bench.served import HEALTH, Served
from agl_streams.bench.work import SPAN_BYTES, opened, span_of, spread
from agl_streams.models import AttemptedRollout
from agl_streams.store import StreamStore

REQUESTS: Final = 1500
TASKS: Final = 16
BATCH: Final = 100  # spans in one export
EXPORTS: Final = 40
ATTRIBUTES: Final = 10  # of an exported span, 1 KB together
JSON: Final = {"content-type": "application/json"}
PROTOBUF: Final = {"content-type": "application/x-protobuf"}
AGL: Final = "/v1/agl"


class Request(NamedTuple):
    """One request, made before the time begins."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = JSON


class Load(NamedTuple):
    """The requests of one measurement; ``per`` is how many units (spans) each of them carries."""

    what: str
    requests: list[Request]
    unit: str = "requests"
    per: int = 1


async def routes(served: Served, *, requests: int = REQUESTS, exports: int = EXPORTS) -> list[Row]:
    """A row for each route: how many per second, how long each took, and the processor time behind it."""
    rows: list[Row] = []
    async with aiohttp.ClientSession(served.url) as session:
        for load in await _loads(served.store, requests, exports):
            rows.append(await _measured(served, session, load))
    return rows


async def _measured(served: Served, session: aiohttp.ClientSession, load: Load) -> Row:
    times: list[float] = []

    async def step(number: int) -> None:
        request, start = load.requests[number], clock.monotonic_s()
        async with session.request(request.method, request.path, data=request.body, headers=request.headers) as answer:
            await answer.read()
            answer.raise_for_status()
        times.append((clock.monotonic_s() - start) * MS_PER_S)

    count = len(load.requests)
    before, begun = await served.spent(), clock.monotonic_s()
    await spread(count, TASKS, step)
    taken, spent = clock.monotonic_s() - begun, (await served.spent()).since(before)
    per = US_PER_S / (count * load.per)
    detail = (
        f"p50 {quantile(times, 0.5):.2f} ms, p99 {quantile(times, 0.99):.2f} ms a request; "
        f"processor time each: server {sum(spent.servers) * per:,.0f} µs, engine {spent.engine * per:,.0f} µs"
    )
    return Row("-", f"{load.what}: {load.unit}/s, {TASKS} at once", count * load.per / taken, detail=detail)


async def _loads(store: StreamStore, requests: int, exports: int) -> list[Load]:
    attempts = [await opened(store) for _ in range(requests)]
    first = attempts[0]
    rollout = f"{AGL}/rollouts/{first.rollout_id}"
    exported = [Request("POST", "/v1/traces", otlp_batch(first), PROTOBUF) for _ in range(exports)]
    spans = [Request("POST", f"{AGL}/spans?assign_sequence=true", span_of(one).to_json()) for one in attempts]
    finished = [Request("POST", _path_of(one), encoded({"status": "succeeded"})) for one in attempts]
    return [
        Load("health", [Request("GET", HEALTH)] * requests),
        Load("enqueue", [enqueue()] * requests),
        Load("dequeue", [Request("POST", f"{AGL}/queues/rollouts/dequeue", encoded({"limit": 1}))] * requests),
        Load("add span of 1 KB", spans),
        Load("get rollout", [Request("GET", rollout)] * requests),
        Load("finish attempt", finished),
        Load(f"OTLP, batches of {BATCH} spans of 1 KB in {ATTRIBUTES} attributes", exported, "spans", BATCH),
    ]


def enqueue() -> Request:
    """A request that puts a small rollout on the queue."""
    return Request("POST", f"{AGL}/queues/rollouts/enqueue", encoded({"rollouts": [{"input": {"task": 1}}]}))


def encoded(value: Any) -> bytes:
    """JSON."""
    return json.dumps(value).encode()


def _path_of(attempted: AttemptedRollout) -> str:
    return f"{AGL}/rollouts/{attempted.rollout_id}/attempts/{attempted.attempt.attempt_id}"


def otlp_batch(attempted: AttemptedRollout, count: int = BATCH) -> bytes:
    """One export request, in protobuf."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    identity = ((semconv.ROLLOUT_ID, attempted.rollout_id), (semconv.ATTEMPT_ID, attempted.attempt.attempt_id))
    for name, value in identity:
        group.resource.attributes.add(key=name).value.string_value = value
    scope = group.scope_spans.add()
    size = SPAN_BYTES // ATTRIBUTES
    for _ in range(count):
        span = scope.spans.add(
            trace_id=os.urandom(16), span_id=os.urandom(8), name="work", start_time_unix_nano=1, end_time_unix_nano=2
        )
        for number in range(ATTRIBUTES):
            span.attributes.add(key=f"payload.{number}").value.string_value = secrets.token_urlsafe(size)[:size]
    return request.SerializeToString()
