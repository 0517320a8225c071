"""Two releases on one server, each with processes of its own: side by side, and one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from agl_streams.config import Settings
from agl_streams.library import SCHEMA, library
from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.builds import NEWER, become_newer, live_as_newer, newer_library
from tests.support.chaos import feed
from tests.support.chaos_processes import Crew, Member
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.waiting import until

ROLLOUTS = 40


class NewerCrew(Crew):
    """Processes of the release after this one."""

    def _start(self, kind: str, work: Callable[[], None]) -> Member:
        return super()._start(kind, partial(live_as_newer, work))


@pytest.fixture
def other_settings(settings: Settings) -> Settings:
    """Another namespace of the same server."""
    return settings.model_copy(update={"namespace": f"{settings.namespace}-newer"})


@pytest.fixture
def make_newer(tmp_path: Path) -> Generator[Callable[[Settings], NewerCrew]]:
    """Makes a crew of the newer release; its processes end with the test."""
    crews: list[NewerCrew] = []

    def make(settings: Settings) -> NewerCrew:
        directory = tmp_path / "newer"
        directory.mkdir()
        crews.append(NewerCrew(settings, directory))
        return crews[-1]

    yield make
    for crew in crews:
        crew.close()


async def schema_of(store: StreamStore) -> int:
    """The newest schema that has written to a namespace."""
    return int(cast("bytes", await store.connection.execute("HGET", store.functions(0).keys.meta, "schema")))


async def libraries(store: StreamStore) -> set[bytes]:
    """The libraries that the server has loaded."""
    listed = cast("list[Any]", await store.connection.execute("FUNCTION", "LIST"))
    return {entry[entry.index(b"library_name") + 1] for entry in listed}


async def check_finished_once(store: StreamStore, ids: list[str]) -> None:
    """Every rollout has succeeded, once, with its spans."""
    rollouts = await store.query_rollouts(rollout_id_in=ids)
    assert [rollout.status for rollout in rollouts] == ["succeeded"] * len(ids)
    assert await store.finished_counts() == dict.fromkeys(ids, 1)
    for rollout_id in ids:
        assert len(await store.query_spans(rollout_id, "latest")) == SPANS


@pytest.mark.timeout(300)
async def test_two_releases_work_side_by_side(
    store: StreamStore, crew: Crew, make_newer: Callable[[Settings], NewerCrew], other_settings: Settings
) -> None:
    """Each on its namespace: runners, watchdogs and functions of two schemas share a server and nothing else."""
    newer = make_newer(other_settings)
    for one in (crew, newer):
        one.aggregator()
        one.runner("some_work")
    async with await StreamStore.connect(settings=other_settings) as other:
        await become_newer(other)
        ids = {one: await feed(one, ROLLOUTS) for one in (store, other)}
        for one, rollout_ids in ids.items():
            await wait_until_done(one, rollout_ids)
        assert {library().name.encode(), newer_library().name.encode()} <= await libraries(store)
        assert (await schema_of(store), await schema_of(other)) == (SCHEMA, NEWER)
        await check_finished_once(other, ids[other])
    assert [member.terminate() for member in (*crew.members, *newer.members)] == [0, 0, 0, 0]
    await check_invariants(store, ids[store], spans=SPANS)


@pytest.mark.timeout(300)
async def test_a_newer_release_takes_a_namespace_over(
    store: StreamStore, crew: Crew, make_newer: Callable[[Settings], NewerCrew]
) -> None:
    """Processes of the older one end, each with what to do in its last words; all work is done, and done once."""
    members = [crew.aggregator(), crew.runner("some_work"), crew.runner("some_work")]
    ids = await feed(store, ROLLOUTS)
    await until(lambda: store.finished_counts(), what="the older release to work")
    newer = make_newer(crew.settings)
    newer.aggregator()
    newer.runner("some_work")
    await become_newer(store)
    ids += await feed(store, ROLLOUTS)
    for member in members:
        await until(lambda member=member: not member.running, what=f"{member.name} to end")
        assert "upgrade agl-streams here" in member.output, member.output
    await wait_until_done(store, ids)
    await check_finished_once(store, ids)
    assert [member.terminate() for member in newer.members] == [0, 0]
