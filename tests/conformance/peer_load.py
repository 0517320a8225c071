"""Load for `make bench-peers`, from the side of agentlightning: its unmodified client, and its memory store.

A line of JSON on standard input names a measurement and its parameters; the seconds that it took are answered.
What is measured is made ready first, outside the time.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from agentlightning import InMemoryLightningStore, LightningStoreClient
from agentlightning.store.base import LightningStore
from agentlightning.types import AttemptedRollout, Span
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPAN_BYTES = 1000
SPANS_PER_CYCLE = 10
BATCH = 100
PROTOBUF = {"content-type": "application/x-protobuf"}


def span_of(attempted: AttemptedRollout, number: int) -> Span:
    """A span with one attribute of 1 KB that does not compress well."""
    return Span.from_attributes(
        name="work",
        attributes={"payload": secrets.token_urlsafe(SPAN_BYTES)[:SPAN_BYTES]},
        rollout_id=attempted.rollout_id,
        attempt_id=attempted.attempt.attempt_id,
        sequence_id=number,
        start_time=1.0,
        end_time=2.0,
    )


async def cycle(store: LightningStore, *, batched: bool) -> None:
    """Enqueue, dequeue, ten spans of 1 KB, finish."""
    await store.enqueue_rollout({"task": 1})
    attempted = await store.dequeue_rollout()
    assert attempted, "somebody else took what this benchmark had put on the queue"
    spans = [span_of(attempted, number) for number in range(1, SPANS_PER_CYCLE + 1)]
    if batched:
        await store.add_many_spans(spans)
    else:
        for span in spans:
            await store.add_span(span)
    await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, status="succeeded")


async def seconds_of(count: int, tasks: int, step: Callable[[], Awaitable[object]]) -> float:
    """How long ``tasks`` tasks at once take for ``count`` steps."""
    numbers = iter(range(count))

    async def run() -> None:
        for _ in numbers:
            await step()

    begin = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(tasks)))
    return time.perf_counter() - begin


async def client_cycles(url: str, count: int, tasks: int) -> float:
    """Cycles through the client, which sends spans one by one whatever it is asked."""
    client = LightningStoreClient(url, retry_delays=())
    try:
        await client.get_latest_resources()  # a connection is there before the time begins
        return await seconds_of(count, tasks, lambda: cycle(client, batched=False))
    finally:
        await client.close()


async def memory_cycles(count: int, batched: bool) -> float:
    """Cycles on the memory store in this process, new each time."""
    store = InMemoryLightningStore()
    return await seconds_of(count, 1, lambda: cycle(store, batched=batched))


async def otlp(url: str, count: int, tasks: int, attributes: int) -> float:
    """Export requests of 100 spans of 1 KB in so many attributes, made before the time begins."""
    client = LightningStoreClient(url, retry_delays=())
    attempted = await client.start_rollout({"task": 1})
    await client.close()
    bodies = iter([otlp_batch(attempted, attributes) for _ in range(count)])
    async with aiohttp.ClientSession() as session:

        async def send() -> None:
            async with session.post(client.otlp_traces_endpoint(), data=next(bodies), headers=PROTOBUF) as answer:
                answer.raise_for_status()
                assert not await answer.read(), "some spans were rejected"

        return await seconds_of(count, tasks, send)


def otlp_batch(attempted: AttemptedRollout, attributes: int) -> bytes:
    """One export request."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    identity = {"rollout_id": attempted.rollout_id, "attempt_id": attempted.attempt.attempt_id}
    for name, value in identity.items():
        group.resource.attributes.add(key=f"agentlightning.{name}").value.string_value = value
    scope = group.scope_spans.add()
    for _ in range(BATCH):
        span = scope.spans.add(
            trace_id=os.urandom(16), span_id=os.urandom(8), name="work", start_time_unix_nano=1, end_time_unix_nano=2
        )
        size = SPAN_BYTES // attributes
        for number in range(attributes):
            span.attributes.add(key=f"payload.{number}").value.string_value = secrets.token_urlsafe(size)[:size]
    return request.SerializeToString()


MEASUREMENTS: dict[str, Callable[..., Awaitable[float]]] = {
    "client_cycles": client_cycles,
    "memory_cycles": memory_cycles,
    "otlp": otlp,
}


async def main() -> None:
    """Answer line after line until the input ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        request: dict[str, Any] = json.loads(line)
        measure = MEASUREMENTS[request.pop("measure")]
        print(json.dumps(await measure(**request)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
