"""What a store is asked for, one call at a time: every operation that has an index, for the benchmark of growth."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agl_streams.bench.work import cycle, opened, span_of
from agl_streams.models import LLM, AttemptedRollout
from agl_streams.store import StreamStore

RECENT: Final = 200  # finished lately, in either store: what a page of the newest shows, and must look at for ties
RUNNING: Final = 20
PAGE: Final = 10  # rollouts asked for at a time
WORKER: Final = "benchmark"


@dataclass(slots=True)
class Side:
    """A store that is measured.

    Attributes:
        finished: ids to ask for; of those that were finished long ago where there are such.
        recent: ids of rollouts with spans that were finished lately.
        server_us: server time of one call, one figure for each measurement.
    """

    store: StreamStore
    finished: Iterator[str]
    recent: Iterator[str]
    server_us: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the benchmark.

    Attributes:
        prepare: makes what one call needs, outside the time.
        run: the call.
    """

    name: str
    prepare: Callable[[Side], Awaitable[Any]]
    run: Callable[[StreamStore, Any], Awaitable[object]]


async def side_of(store: StreamStore, old: Sequence[str]) -> Side:
    """A store with what happens to be there besides: rollouts that were finished lately, and some that run."""
    for _ in range(RECENT):
        await cycle(store, batched=True)
    for _ in range(RUNNING):
        attempted = await opened(store)
        await store.add_span(span_of(attempted), assign_sequence=True)
    await store.add_resources({"model": LLM(endpoint="http://localhost", model="m")})
    await store.settle()
    page = await store.query_rollouts(sort_by="start_time", sort_order="desc", limit=RECENT + RUNNING)
    recent = [rollout.rollout_id for rollout in page.items if rollout.status == "succeeded"]
    return Side(store, itertools.cycle(old or recent), itertools.cycle(recent))


async def _nothing(_: Side) -> None:
    return None


async def _finished(side: Side) -> str:
    return next(side.finished)


async def _recent(side: Side) -> str:
    return next(side.recent)


async def _several(side: Side) -> list[str]:
    return list(itertools.islice(side.finished, PAGE))


async def _queued(side: Side) -> str:
    return (await side.store.enqueue_rollout({"task": 1})).rollout_id


async def _opened(side: Side) -> AttemptedRollout:
    return await opened(side.store)


async def _with_news(side: Side) -> None:
    """The log has a span that is not folded yet."""
    attempted = await opened(side.store)
    await side.store.settle()
    await side.store.add_span(span_of(attempted), assign_sequence=True)


def _ids(attempted: AttemptedRollout) -> tuple[str, str]:
    return attempted.rollout_id, attempted.attempt.attempt_id


def _newest(**filters: Any) -> Callable[[StreamStore, Any], Awaitable[object]]:
    return lambda store, _: store.query_rollouts(sort_by="start_time", sort_order="desc", limit=PAGE, **filters)


# Reads come first: they then find the same in either store, whatever the writes leave behind.
OPERATIONS: Final = (
    Operation("get_rollout_by_id", _finished, lambda store, one: store.get_rollout_by_id(one)),
    Operation("get_latest_attempt", _finished, lambda store, one: store.get_latest_attempt(one)),
    Operation("query_attempts", _finished, lambda store, one: store.query_attempts(one)),
    Operation("query_spans, 10 of them", _recent, lambda store, one: store.query_spans(one)),
    Operation("rollout_sums", _finished, lambda store, one: store.rollout_sums(one)),
    Operation("wait_for_rollouts, 10 finished", _several, lambda store, ids: store.wait_for_rollouts(rollout_ids=ids)),
    Operation("query_rollouts, 10 ids", _several, lambda store, ids: store.query_rollouts(rollout_id_in=ids)),
    Operation("query_rollouts, newest 10 of all", _nothing, _newest()),
    Operation("query_rollouts, newest 10 succeeded", _nothing, _newest(status_in=["succeeded"])),
    Operation(
        "query_rollouts, oldest 10 succeeded",
        _nothing,
        lambda store, _: store.query_rollouts(status_in=["succeeded"], limit=PAGE),
    ),
    Operation("query_rollouts, all running", _nothing, lambda store, _: store.query_rollouts(status_in=["running"])),
    Operation("query_workers", _nothing, lambda store, _: store.query_workers()),
    Operation("get_worker_by_id", _nothing, lambda store, _: store.get_worker_by_id(WORKER)),
    Operation("get_latest_resources", _nothing, lambda store, _: store.get_latest_resources()),
    Operation("query_resources", _nothing, lambda store, _: store.query_resources()),
    Operation("statistics", _nothing, lambda store, _: store.statistics()),
    Operation("expire_once", _nothing, lambda store, _: store.expire_once(0)),
    Operation("update_worker", _nothing, lambda store, _: store.update_worker(WORKER, {"load": 1})),
    Operation("enqueue_rollout", _nothing, lambda store, _: store.enqueue_rollout({"task": 1})),
    Operation("dequeue_rollout", _queued, lambda store, _: store.dequeue_rollout(WORKER)),
    Operation("start_rollout", _nothing, lambda store, _: opened(store)),
    Operation("start_attempt", _queued, lambda store, one: store.start_attempt(one)),
    Operation("renew_attempt", _opened, lambda store, one: store.renew_attempt(*_ids(one))),
    Operation("get_next_span_sequence_id", _opened, lambda store, one: store.get_next_span_sequence_id(*_ids(one))),
    Operation("add_span", _opened, lambda store, one: store.add_span(span_of(one), assign_sequence=True)),
    Operation("fold_once, 3 events", _with_news, lambda store, _: store.fold_once(0)),
    Operation("update_attempt, finishing", _opened, lambda store, one: store.update_attempt(*_ids(one), "succeeded")),
    Operation("update_rollout", _finished, lambda store, one: store.update_rollout(one, metadata={"seen": True})),
    Operation("cancel_rollout", _queued, lambda store, one: store.cancel_rollout(one, "benchmark")),
)
