"""Queries against plain Python over everything: filters, logic, order and pages give what a list would give."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl_streams.config import load_settings
from agl_streams.engine import Engine
from agl_streams.models import AttemptStatus, Rollout, RolloutConfig
from agl_streams.store import StreamStore
from tests.support.leaks import remove_namespace
from tests.support.timeline import Timeline

T = TypeVar("T")

ROLLOUTS = 40
STATUSES: tuple[Any, ...] = ("queuing", "preparing", "running", "succeeded", "failed", "requeuing", "cancelled")
SORTS = (None, "rollout_id", "status", "start_time", "end_time", "mode", "resources_id")
_numbers = itertools.count()


class Population:
    """A namespace with rollouts of every status, some with equal times, on one shard or several."""

    def __init__(self, url: str, shards: int) -> None:
        self._loop = asyncio.new_event_loop()
        named = load_settings(redis_url=url, namespace=f"q-{next(_numbers)}", shards=shards)
        self.store = self.run(StreamStore.connect(settings=named))
        self.run(self._fill())
        self.all: Sequence[Rollout] = self.run(self.store.query_rollouts()).items

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """Close the store and remove its keys."""
        self.run(self.store.close())
        remove_namespace(self.store.url, self.store.settings.namespace)
        self._loop.close()

    async def _fill(self) -> None:
        store, time = self.store, await Timeline(self.store).watched()
        retry = RolloutConfig(max_attempts=9, retry_condition=["failed"])
        ends: list[AttemptStatus | None] = ["running", "succeeded", "failed", "timeout", None]
        for number in range(ROLLOUTS):
            time.jumps(number % 3)
            mode: Any = ("train", "val", None)[number % 3]
            resources = f"rs-{number % 4}" if number % 4 else None
            rollout_id = f"r{number * 7 % ROLLOUTS}"
            await store.enqueue_rollout(number, mode, resources, retry, rollout_id=rollout_id)
            if number % 2:
                await store.start_attempt(rollout_id, f"w{number % 5}")
                end = ends[number % len(ends)]
                if end:
                    await store.update_attempt(rollout_id, "latest", end)
            elif number % 6 == 0:
                await store.cancel_rollout(rollout_id, "no")


@pytest.fixture(scope="module", params=[1, 3], ids=["one shard", "three shards"])
def population(valkey: Engine, request: pytest.FixtureRequest) -> Generator[Population]:
    """The rollouts of all examples."""
    population = Population(valkey.url, request.param)
    yield population
    population.close()


def order(rollout: Rollout, field: str) -> Any:
    """How a field is ordered: a null time is later than all, another null is empty."""
    value = getattr(rollout, field)
    if value is not None:
        return value
    return float("inf") if field.endswith("_time") else ""


@settings(max_examples=150, deadline=None)
@given(
    status_in=st.none() | st.lists(st.sampled_from(STATUSES), max_size=3),
    ids=st.none() | st.lists(st.integers(0, ROLLOUTS + 3), max_size=5),
    part=st.none() | st.sampled_from(["r", "1", "3", "R", ""]),
    logic=st.sampled_from(["and", "or"]),
    sort=st.sampled_from(SORTS),
    descending=st.booleans(),
    limit=st.sampled_from([-1, 1, 3, 10, 100]),
    offset=st.sampled_from([0, 0, 1, 5, 39, 100]),
)
def test_rollouts_are_found_as_in_a_list(
    population: Population,
    status_in: list[Any] | None,
    ids: list[int] | None,
    part: str | None,
    logic: Any,
    sort: str | None,
    descending: bool,
    limit: int,
    offset: int,
) -> None:
    """Whatever is asked for, by index or by scan, it is what filtering, sorting and cutting all rollouts gives."""
    named = None if ids is None else [f"r{number}" for number in ids]
    page = population.run(
        population.store.query_rollouts(
            status_in=status_in,
            rollout_id_in=named,
            rollout_id_contains=part,
            filter_logic=logic,
            sort_by=sort,
            sort_order="desc" if descending else "asc",
            limit=limit,
            offset=offset,
        )
    )
    tests: list[Callable[[Rollout], bool]] = []
    if status_in is not None:
        tests.append(lambda one: one.status in status_in)
    if named is not None:
        tests.append(lambda one: one.rollout_id in named)
    if part is not None:
        tests.append(lambda one: part in one.rollout_id)
    join = all if logic == "and" else any
    expected = [one for one in population.all if not tests or join(test(one) for test in tests)]
    if sort is not None:
        expected.sort(key=lambda one: order(one, sort), reverse=descending)
    shown = expected[offset:] if limit == -1 else expected[offset : offset + limit]
    assert [one.rollout_id for one in page] == [one.rollout_id for one in shown]
    assert list(page) == shown
    assert (page.total, page.limit, page.offset) == (len(expected), limit, offset)


def test_there_is_one_of_each_status(population: Population) -> None:
    """The population has what the examples ask for, and equal times."""
    assert {one.status for one in population.all} >= set(STATUSES) - {"running"}
    assert len({one.start_time for one in population.all}) < len(population.all)
