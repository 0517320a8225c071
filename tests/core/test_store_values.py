"""Bad input gets an error of our tree that names it, and changes nothing."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from agl_streams.errors import InvalidRequest, NotFound, TooLarge
from agl_streams.models import EnqueueRolloutRequest, RolloutConfig
from agl_streams.store import StreamStore
from tests.support.rebuild import Content, assert_equal_content, durable_content
from tests.support.spans import reward

FIFTY_MB = 50 * 1024 * 1024
Call = Callable[[StreamStore], Awaitable[Any]]


def any_(value: object) -> Any:
    """A value of a type that the signature forbids."""
    return value


def circular() -> list[Any]:
    """A list that holds itself."""
    items: list[Any] = []
    items.append(items)
    return items


NOT_JSON: dict[str, tuple[Any, str]] = {
    "NaN": (math.nan, "nan"),
    "infinity": ({"deep": [1, {"x": math.inf}]}, r"\['deep'\]\[1\]\['x'\] is inf"),
    "a lone surrogate": ({"text": "a\ud800"}, "surrogate"),
    "a surrogate in a key": ({"\udfff": 1}, "surrogate"),
    "bytes": (b"\xff\xfe", "bytes"),
    "a set": ({1, 2}, "set"),
    "an object": (object(), "object"),
    "a key that is no string": ({1: "x"}, "keys must be strings"),
    "itself": (circular(), "holds itself|deeper|limit"),
    "a giant integer": (1 << 20_000, "integer"),
}
"""What is no JSON, and how the error shows it."""


@pytest.fixture
async def used(store: StreamStore) -> StreamStore:
    """A store with a rollout ``r`` and its attempt."""
    await store.enqueue_rollout({"a": 1}, rollout_id="r")
    await store.start_attempt("r", "w")
    return store


@pytest.fixture(autouse=True)
async def nothing_changed(used: StreamStore, redis_url: str) -> AsyncGenerator[None]:
    """After each test every durable key, the log with it, is as it was."""
    before: Content = durable_content(redis_url, used.settings.namespace)
    yield
    assert_equal_content(before, durable_content(redis_url, used.settings.namespace), ("before", "after"))


@pytest.mark.parametrize(("value", "shown"), NOT_JSON.values(), ids=NOT_JSON)
async def test_what_is_no_json_is_refused(used: StreamStore, value: Any, shown: str) -> None:
    """As an input, in metadata of rollout and attempt, and in heartbeat statistics; the error shows the place."""
    with pytest.raises(InvalidRequest, match=shown):
        await used.enqueue_rollout(value)
    with pytest.raises(InvalidRequest, match=shown):
        await used.update_rollout("r", input=value)
    for call in (
        used.enqueue_rollout("x", metadata={"m": value}),
        used.update_rollout("r", metadata={"m": value}),
        used.update_attempt("r", "latest", "succeeded", metadata={"m": value}),
        used.update_worker("w", {"m": value}),
        used.start_rollout(value),
    ):
        with pytest.raises(InvalidRequest, match=shown):
            await call


async def test_one_bad_input_spoils_the_bulk(used: StreamStore) -> None:
    """None of the others is enqueued."""
    requests = [EnqueueRolloutRequest(input=value) for value in (1, math.nan, 3)]
    with pytest.raises(InvalidRequest, match="input is nan"):
        await used.enqueue_many_rollouts(requests)


async def test_a_huge_input_is_refused_in_the_client(used: StreamStore) -> None:
    """50 MB are 12 times the limit; the error says what the limit is, and not a byte has been sent."""
    huge = "x" * FIFTY_MB
    received = await _bytes_received(used)
    for call in (
        used.enqueue_rollout(huge),
        used.enqueue_rollout("x", metadata={"m": huge}),
        used.update_rollout("r", metadata={"m": huge}),
        used.update_attempt("r", "latest", metadata={"m": huge}),
        used.update_worker("w", {"m": huge}),
        used.add_span(reward(1, 1.0, rollout_id="r", attempt_id="at-1").model_copy(update={"name": huge})),
    ):
        with pytest.raises(TooLarge, match=r"the limit is \d,\d\d\d,\d\d\d"):
            await call
    assert await _bytes_received(used) - received < 100_000


CALLS: dict[str, tuple[Call, str]] = {
    "a mode of no kind": (lambda s: s.enqueue_rollout("x", any_("training")), "training"),
    "a config that is a dict": (lambda s: s.update_rollout("r", config=any_({"max_attempts": 2})), "RolloutConfig"),
    "metadata that is a list": (lambda s: s.enqueue_rollout("x", metadata=any_([1])), "metadata"),
    "metadata of an update that is text": (lambda s: s.update_rollout("r", metadata=any_("text")), "metadata"),
    "metadata of an attempt that is None": (lambda s: s.update_attempt("r", "latest", metadata=any_(None)), "metadata"),
    "statistics that are None": (lambda s: s.update_worker("w", any_(None)), "heartbeat_stats"),
    "a rollout status of no kind": (lambda s: s.update_rollout("r", status="done"), "'done'"),
    "a rollout status of None": (lambda s: s.update_rollout("r", status=None), "status"),
    "a rollout status that is a list": (lambda s: s.update_rollout("r", status=[]), "status"),
    "an attempt status of no kind": (lambda s: s.update_attempt("r", "latest", "cancelled"), "'cancelled'"),
    "a heartbeat in no time": (lambda s: s.update_attempt("r", "latest", last_heartbeat_time=math.nan), "heartbeat"),
    "a heartbeat before time": (lambda s: s.update_attempt("r", "latest", last_heartbeat_time=-1.0), "-1.0"),
    "a heartbeat as text": (lambda s: s.update_attempt("r", "latest", last_heartbeat_time=any_("now")), "'now'"),
    "a worker that is a number": (lambda s: s.dequeue_rollout(any_(7)), "worker id"),
    "a worker of an attempt that is a number": (lambda s: s.update_attempt("r", "latest", worker_id=any_(7)), "worker"),
    "a rollout id that is a number": (lambda s: s.enqueue_rollout("x", rollout_id=any_(7)), "rollout"),
    "resources that are a number": (lambda s: s.enqueue_rollout("x", resources_id=any_(7)), "resources"),
    "an odd resources id": (lambda s: s.update_rollout("r", resources_id="a\nb"), "resources id"),
    "a negative timeout": (lambda s: s.enqueue_rollout("x", config=RolloutConfig(timeout_seconds=-1)), "timeout_sec"),
    "a silence of eternity": (
        lambda s: s.update_rollout("r", config=RolloutConfig(unresponsive_seconds=1e12)),
        "unresponsive_seconds",
    ),
    "a negative lease": (lambda s: s.start_rollout("x", lease_seconds=-1.0), "lease_seconds"),
    "a lease of no length": (lambda s: s.start_attempt("r", lease_seconds=math.nan), "lease_seconds"),
    "a renewal for ever": (lambda s: s.renew_attempt("r", "latest", lease_seconds=math.inf), "lease_seconds"),
    "a negative limit": (lambda s: s.query_rollouts(limit=-2), "-2"),
    "a limit of nothing": (lambda s: s.query_rollouts(limit=0), "0"),
    "a limit that is text": (lambda s: s.query_rollouts(limit=any_("3")), "'3'"),
    "a negative offset": (lambda s: s.query_attempts("r", offset=-1), "-1"),
    "a sort by nothing": (lambda s: s.query_spans("r", sort_by="nonsense"), "nonsense"),
    "an order of no kind": (lambda s: s.query_rollouts(sort_by="status", sort_order=any_("up")), "up"),
    "a logic of no kind": (lambda s: s.query_rollouts(filter_logic=any_("xor")), "xor"),
    "a status filter of no kind": (lambda s: s.query_rollouts(status_in=any_(["done"])), "done"),
    "a status filter that is text": (lambda s: s.query_rollouts(status_in=any_("running")), "status_in"),
    "ids that are text": (lambda s: s.wait_for_rollouts(rollout_ids=any_("r"), timeout=0), "rollout_ids"),
    "a timeout that is text": (lambda s: s.wait_for_rollouts(rollout_ids=["r"], timeout=any_("1")), "timeout"),
    "a dequeue limit that is text": (lambda s: s.dequeue_many_rollouts(limit=any_("1")), "limit"),
    "a reason that is a number": (lambda s: s.cancel_rollout("r", any_(7)), "reason"),
    "a span that is a dict": (lambda s: s.add_span(any_({"span_id": "a"})), "Span"),
    "spans of which one is None": (lambda s: s.add_many_spans(any_([None])), "Span"),
    "a request that is a dict": (lambda s: s.enqueue_many_rollouts(any_([{"input": 1}])), "EnqueueRolloutRequest"),
}
"""Wrong types and values in every place, and what the error must show."""


@pytest.mark.parametrize(("call", "shown"), CALLS.values(), ids=CALLS)
async def test_wrong_types_and_values_are_refused(used: StreamStore, call: Call, shown: str) -> None:
    """An InvalidRequest, which is a ValueError, shows the name or the value."""
    with pytest.raises(InvalidRequest, match=shown):
        await call(used)


ODD_IDS = ["", "a b", "a:b", "r}", "ü", "x" * 200, "r\x00", "\ud800", 7, None]


@pytest.mark.parametrize("odd", ODD_IDS, ids=repr)
async def test_an_odd_id_is_missing_wherever_it_is_asked_for(used: StreamStore, odd: Any) -> None:
    """It cannot exist: queries find nothing, calls that need it say NotFound, and no key is touched."""
    assert await used.get_rollout_by_id(odd) is None
    assert await used.get_latest_attempt(odd) is None
    assert (await used.query_attempts(odd)).total == 0
    assert (await used.query_spans(odd)).total == 0
    assert (await used.query_rollouts(rollout_id_in=[odd])).total == 0
    assert await used.wait_for_rollouts(rollout_ids=[odd], timeout=0) == []
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: used.update_rollout(odd, status="failed"),
        lambda: used.update_attempt(odd, "latest", "failed"),
        lambda: used.update_attempt("r", odd, "failed"),
        lambda: used.start_attempt(odd),
        lambda: used.cancel_rollout(odd, "x"),
        lambda: used.renew_attempt(odd, "at-1"),
        lambda: used.renew_attempt("r", odd),
        lambda: used.admit_call("r", odd),
        lambda: used.rollout_sums(odd),
        lambda: used.attempt_sums("r", odd),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            await call()


async def _bytes_received(store: StreamStore) -> int:
    info = await store.connection.execute("INFO", "stats")
    assert isinstance(info, bytes)
    return int(info.split(b"total_net_input_bytes:")[1].split()[0])
