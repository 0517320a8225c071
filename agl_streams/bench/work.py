"""Pieces of work that several benchmarks measure: spans of a known size, whole cycles, many tasks at once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from agl_streams.models import AttemptedRollout, Span
from agl_streams.store import StreamStore

SPAN_BYTES: Final = 1000
SPANS_PER_CYCLE: Final = 10


def span_of(attempted: AttemptedRollout, size: int = SPAN_BYTES) -> Span:
    """A span with one attribute of ``size`` characters that does not compress well."""
    text = secrets.token_urlsafe(size)[:size]
    return Span.from_attributes(
        name="work",
        attributes={"payload": text},
        rollout_id=attempted.rollout_id,
        attempt_id=attempted.attempt.attempt_id,
        start_time=1.0,
        end_time=2.0,
    )


async def opened(store: StreamStore) -> AttemptedRollout:
    """A rollout with an open attempt."""
    return await store.start_rollout({"benchmark": True})


async def cycle(store: StreamStore, *, batched: bool) -> None:
    """Enqueue, dequeue, ten spans of 1 KB, finish."""
    await store.enqueue_rollout({"task": 1})
    attempted = await store.dequeue_rollout("benchmark")
    if attempted is None:
        raise RuntimeError("the benchmark's queue was emptied by somebody else; give it a namespace of its own")
    spans = [span_of(attempted) for _ in range(SPANS_PER_CYCLE)]
    if batched:
        await store.add_many_spans(spans, assign_sequence=True)
    else:
        for span in spans:
            await store.add_span(span, assign_sequence=True)
    await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, "succeeded")


async def spread(count: int, tasks: int, step: Callable[[int], Awaitable[object]]) -> None:
    """Run ``step`` for 0 … count - 1, by ``tasks`` tasks at once."""
    numbers = iter(range(count))

    async def run() -> None:
        for number in numbers:
            await step(number)

    await asyncio.gather(*(run() for _ in range(tasks)))
