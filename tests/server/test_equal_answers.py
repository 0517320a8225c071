"""Whatever is done, over HTTP and beside the engine the same is read: compared after random histories."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agl_streams.client import StoreClient
from agl_streams.config import Settings
from agl_streams.errors import AglError
from agl_streams.models import PaginatedResult, Span
from agl_streams.shapes import Wire
from agl_streams.store import StreamStore
from tests.server.conftest import serving

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=6,
)
NUMBER = st.integers(0, 3)
STEP = st.one_of(
    st.tuples(st.just("enqueue"), JSON, st.none() | st.dictionaries(st.text(max_size=3), JSON, max_size=2)),
    st.tuples(st.just("start"), JSON, st.sampled_from(["train", "val", None])),
    st.tuples(st.just("dequeue"), st.sampled_from(["w1", "w 2/é", None]), st.integers(0, 2)),
    st.tuples(st.just("report"), NUMBER, st.sampled_from(["running", "failed", "succeeded", "timeout", "nonsense"])),
    st.tuples(st.just("change"), NUMBER, st.sampled_from(["queuing", "cancelled", "succeeded"])),
    st.tuples(st.just("attempt"), NUMBER, st.none()),
    st.tuples(
        st.just("span"), NUMBER, st.dictionaries(st.text(min_size=1, max_size=3), st.floats() | st.text(max_size=3))
    ),
    st.tuples(
        st.just("worker"), st.sampled_from(["w1", "w 2/é"]), st.dictionaries(st.text(max_size=3), JSON, max_size=2)
    ),
    st.tuples(st.just("cancel"), NUMBER, st.sampled_from(["why", ""])),
)
PAGES = st.fixed_dictionaries(
    {},
    optional={
        "limit": st.integers(-2, 3),
        "offset": st.integers(-1, 2),
        "sort_by": st.sampled_from([None, "start_time", "status", "rollout_id", "sequence_id", "input", "nope"]),
        "sort_order": st.sampled_from(["asc", "desc"]),
    },
)

Either = StreamStore | StoreClient


async def act(store: Either, step: tuple[Any, ...], known: list[str]) -> Any:
    """One step of a history, by either store; the rollouts that it makes are added to ``known``."""
    kind: str = step[0]
    first: Any = step[1]
    second: Any = step[2]
    rollout_id = known[step[1] % len(known)] if known and isinstance(step[1], int) else "ro-unknown"
    match kind:
        case "enqueue":
            made = await store.enqueue_rollout(first, metadata=second)
            known.append(made.rollout_id)
        case "start":
            made = await store.start_rollout(first, second)
            known.append(made.rollout_id)
        case "dequeue":
            return await store.dequeue_many_rollouts(limit=second, worker_id=first)
        case "report":
            return await store.update_attempt(rollout_id, "latest", status=second)
        case "change":
            return await store.update_rollout(rollout_id, status=second)
        case "attempt":
            return await store.start_attempt(rollout_id, "w1")
        case "span":
            latest = await store.get_latest_attempt(rollout_id)
            span = Span.from_attributes(
                attributes=second,
                rollout_id=rollout_id,
                attempt_id=latest.attempt_id if latest else "at-unknown",
                span_id="ab"[len(second) % 2],
            )
            return await store.add_span(span, assign_sequence=True)
        case "worker":
            return await store.update_worker(first, second)
        case _:
            return await store.cancel_rollout(rollout_id, second)
    return None


def written(answer: Any) -> Any:
    """An answer, or the error in its place, as text that can be compared; NaN equals itself there."""
    if isinstance(answer, PaginatedResult):
        page = cast("PaginatedResult[Any]", answer)
        return [written(item) for item in page], page.limit, page.offset, page.total
    return answer.to_json() if isinstance(answer, Wire) else answer


async def outcome(call: Any) -> Any:
    try:
        return written(await call)
    except AglError as error:
        return type(error)


async def reads(store: Either, known: list[str], page: dict[str, Any]) -> dict[str, Any]:
    """Everything that can be read."""
    some = [*known[:4], "ro-unknown", "not an id!"]
    found: dict[str, Any] = {
        "rollouts": await outcome(store.query_rollouts(**page)),
        "either": await outcome(
            store.query_rollouts(status_in=["queuing", "failed"], rollout_id_in=some[:2], filter_logic="or")
        ),
        "workers": await outcome(store.query_workers()),
        "worker": await outcome(store.get_worker_by_id("w 2/é")),
        "finished": await outcome(store.wait_for_rollouts(rollout_ids=some, timeout=0)),
    }
    for one in some:
        found[one] = [
            await outcome(call)
            for call in (
                store.get_rollout_by_id(one),
                store.get_latest_attempt(one),
                store.query_attempts(one, **page),
                store.query_spans(one, "latest", **page),
                store.query_spans(one, name_contains="virtual"),
                store.rollout_sums(one),
            )
        ]
    return found


@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(STEP, st.booleans()), max_size=12), page=PAGES)
def test_over_http_and_beside_the_engine_the_same_is_read(
    settings: Settings, steps: list[tuple[tuple[Any, ...], bool]], page: dict[str, Any]
) -> None:
    """After any history, in which each step is taken by either of them, all reads of both agree, errors included."""

    async def run() -> None:
        known: list[str] = []
        async with (
            serving(settings) as url,
            await StreamStore.connect(settings=settings) as store,
            StoreClient(url, settings) as client,
        ):
            for step, over_http in steps:
                await outcome(act(client if over_http else store, step, known))
            assert await reads(client, known, page) == await reads(store, known, page)

    asyncio.run(run())


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(JSON, min_size=1, max_size=5))
def test_any_json_survives_the_way_through_both(settings: Settings, values: list[Any]) -> None:
    """An input comes back equal, types of numbers included, whichever way it went in and out."""

    async def run() -> None:
        async with (
            serving(settings) as url,
            await StreamStore.connect(settings=settings) as store,
            StoreClient(url, settings) as client,
        ):
            for value in values:
                sent = await client.enqueue_rollout(value, metadata={"copy": value})
                stored = await store.get_rollout_by_id(sent.rollout_id)
                assert stored is not None
                assert json.dumps(stored.input) == json.dumps(sent.input) == json.dumps(value)
                assert stored.metadata == {"copy": value}

    asyncio.run(run())
