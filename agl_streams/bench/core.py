"""``bench core``: spans against bare XADD, the way from the queue to a runner, and whole cycles."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, cast
from uuid import uuid4

from agl_streams import bodies, clock
from agl_streams.appending import NewSpan
from agl_streams.bench.redis_py import RedisPy
from agl_streams.bench.report import MS_PER_S, Row, interleaved, quantile, seconds_of, show
from agl_streams.bench.work import SPANS_PER_CYCLE, cycle, opened, span_of, spread
from agl_streams.config import Settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.store import StreamStore

CALLS: Final = 4000  # single calls per measurement: some 0.2 s
BATCHES: Final = 60
BATCH: Final = 100
TASKS: Final = 16  # callers at once in the one process: a proxy or a runner has several calls in flight
HANDOVERS: Final = 400
CYCLES: Final = 300


def main(settings: Settings, *, pairs: int = 5, json_output: bool = False) -> int:
    """Run the benchmark against ``settings.redis_url`` in a namespace of its own; 0 when every target is met."""
    rows = asyncio.run(measure(settings, pairs))
    return show("agl-streams bench core", rows, json_output=json_output)


async def measure(settings: Settings, pairs: int) -> list[Row]:
    """All rows, then the namespace is removed."""
    async with await StreamStore.connect(settings=settings, namespace=f"bench-{uuid4().hex[:8]}") as store:
        try:
            return [
                *await single(store, pairs),
                *await batched(store, pairs),
                *await handover(store),
                *await _cycles(store, pairs),
            ]
        finally:
            await _remove(store)


async def single(store: StreamStore, pairs: int) -> list[Row]:
    """P1 in the terms it was set in, both sides through redis-py; and our own client, which is leaner, for information.

    Also without concurrency, and with the model's validation and encoding.
    """
    attempted = await opened(store)
    rollout_id, attempt_id = attempted.rollout_id, attempted.attempt.attempt_id
    functions = store.functions_of(rollout_id)
    payload = bodies.pack(span_of(attempted).to_json())
    ids = (f"{number:016x}" for number in itertools.count())

    command = ("XADD", _raw_stream(store), "*", "span", payload)

    def span() -> list[NewSpan]:
        return [NewSpan(next(ids), "", "1000000", "2000000", "", payload)]

    async def bare(_: int) -> None:
        await store.connection.execute(*command)

    async def append(_: int) -> None:
        await functions.append_spans(rollout_id, attempt_id, span())

    async def add(_: int) -> None:
        await store.add_span(span_of(attempted), assign_sequence=True)

    rows: list[Row] = []
    async with RedisPy(store.url) as client:

        async def bare_by_redis_py(_: int) -> None:
            await client.execute(command)

        async def append_by_redis_py(_: int) -> None:
            await client.execute(functions.append_call(rollout_id, attempt_id, span()))

        what = "append_spans, one 1 KB span per call, {} at once, over bare XADD, both by {}"
        for name, told, base, step, tasks, target in (
            ("P1", what.format(TASKS, "redis-py"), bare_by_redis_py, append_by_redis_py, TASKS, 0.7),
            ("-", what.format(1, "redis-py"), bare_by_redis_py, append_by_redis_py, 1, None),
            ("-", what.format(TASKS, "our client"), bare, append, TASKS, None),
            ("-", what.format(1, "our client"), bare, append, 1, None),
            ("-", f"add_span (validated, encoded), {TASKS} at once, over bare XADD", bare, add, TASKS, None),
        ):
            ratio, theirs, ours = await interleaved(pairs, spreading(base, tasks), spreading(step, tasks))
            detail = f"{CALLS / ours:,.0f}/s against {CALLS / theirs:,.0f}/s"
            rows.append(Row(name, told, ratio, target, detail=detail))
            await store.connection.execute("DEL", _raw_stream(store))
    return rows


def spreading(step: Callable[[int], Awaitable[object]], tasks: int) -> Callable[[], Awaitable[object]]:
    """``CALLS`` calls by ``tasks`` tasks at once, as one piece of work."""
    return lambda: spread(CALLS, tasks, step)


async def batched(store: StreamStore, pairs: int) -> list[Row]:
    """P2 in the terms it was set in, both sides through redis-py; and against our own client, which is leaner."""
    attempted = await opened(store)
    rollout_id, attempt_id = attempted.rollout_id, attempted.attempt.attempt_id
    functions = store.functions_of(rollout_id)
    payload = bodies.pack(span_of(attempted).to_json())
    # Made before the clock runs, as the bare commands are: making spans is the caller's work, whatever stores them.
    # They have their numbers, as spans of the proxy and of Agent-lightning's clients have.
    spans = _spans(payload)
    prepared = iter([list(itertools.islice(spans, BATCH)) for _ in range(2 * pairs * BATCHES)])
    commands = [("XADD", _raw_stream(store), "*", "span", payload)] * BATCH

    async def bare() -> None:
        for _ in range(BATCHES):
            await store.connection.pipeline(commands)

    async def append() -> None:
        for _ in range(BATCHES):
            await functions.append_spans(rollout_id, attempt_id, next(prepared))

    async with RedisPy(store.url) as client:

        async def bare_by_redis_py() -> None:
            for _ in range(BATCHES):
                await client.pipeline(commands)

        async def append_by_redis_py() -> None:
            for _ in range(BATCHES):
                await client.execute(functions.append_call(rollout_id, attempt_id, next(prepared)))

        theirs = await interleaved(pairs, bare_by_redis_py, append_by_redis_py)
    ours = await interleaved(pairs, bare, append)
    what = f"append_spans in batches of {BATCH}, over pipelined XADD"
    return [
        Row("P2", f"{what}, both by redis-py", theirs[0], 0.8, detail=_span_rates(theirs)),
        Row("-", f"{what}, both by our client", ours[0], detail=_span_rates(ours)),
    ]


def _spans(payload: bytes) -> Iterator[NewSpan]:
    for number in itertools.count(1):
        yield NewSpan(f"{number:016x}", str(number), "1000000", "2000000", "", payload)


def _span_rates(measured: tuple[float, float, float]) -> str:
    _, base, ours = measured
    count = BATCHES * BATCH
    return f"{count / ours:,.0f} spans/s against {count / base:,.0f}/s"


async def handover(store: StreamStore) -> list[Row]:
    """P7: from the call of enqueue until a runner that was blocked has the attempt."""
    consumer = RolloutConsumer(store, "benchmark-runner")
    waits: list[float] = []
    try:
        for number in range(HANDOVERS):
            taken = asyncio.create_task(consumer.next(1))
            await _blocked(store)
            start = clock.monotonic_s()
            await store.enqueue_rollout({"task": number})
            await taken
            waits.append((clock.monotonic_s() - start) * MS_PER_S)
    finally:
        await consumer.close()
    detail = f"{HANDOVERS} hand-overs, slowest {max(waits):.2f} ms"
    return [
        Row("P7", "enqueue until a blocked runner has the attempt, p50 ms", quantile(waits, 0.5), 1, "low", detail),
        Row("P7", "the same, p99 ms", quantile(waits, 0.99), 5, "low", detail),
    ]


async def _blocked(store: StreamStore) -> None:
    """Return when the server holds a blocked read."""
    while True:
        info = await store.connection.execute("INFO", "clients")
        if isinstance(info, bytes) and b"blocked_clients:0" not in info:
            return


async def _cycles(store: StreamStore, pairs: int) -> Sequence[Row]:
    rows: list[Row] = []
    for batched in (False, True):

        async def run(batched: bool = batched) -> None:
            for _ in range(CYCLES):
                await cycle(store, batched=batched)

        times = sorted([await seconds_of(run) for _ in range(pairs)])
        how = "in one call" if batched else "one by one"
        rate = CYCLES / times[len(times) // 2]
        rows.append(Row("-", f"cycles/s: enqueue, dequeue, {SPANS_PER_CYCLE} spans {how}, finish", rate))
    return rows


def _raw_stream(store: StreamStore) -> str:
    """A stream for bare XADD in the benchmark's own namespace."""
    return store.functions(0).keys.prefix + "bare"


async def _remove(store: StreamStore) -> None:
    for shard in range(store.shards):
        prefix = store.functions(shard).keys.prefix
        cursor: Any = b"0"
        while True:
            cursor, keys = cast("Any", await store.connection.execute("SCAN", cursor, "COUNT", 1000))
            mine = [key for key in keys if key.startswith(prefix.encode())]
            if mine:
                await store.connection.execute("UNLINK", *mine)
            if cursor == b"0":
                break
