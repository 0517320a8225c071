"""Resources: named, versioned bundles; the one updated last is the latest."""

from __future__ import annotations

from typing import Any

import pytest

from agl_streams.config import Settings
from agl_streams.errors import InvalidRequest
from agl_streams.models import LLM, EnqueueRolloutRequest, NamedResources, PromptTemplate
from agl_streams.store import StreamStore
from tests.support.timeline import Timeline


def bundle(model: str) -> NamedResources:
    """A bundle that differs by its model."""
    return {"llm": LLM(endpoint="http://h/v1", model=model), "p": PromptTemplate(template="{x}", engine="f-string")}


async def test_there_is_no_latest_before_the_first(store: StreamStore) -> None:
    """None, and a rollout enqueued then has none."""
    assert await store.get_latest_resources() is None
    assert (await store.enqueue_rollout("x")).resources_id is None


async def test_a_new_bundle_is_version_one(store: StreamStore, time: Timeline) -> None:
    """With equal times of creation and update; it reads back as it was given."""
    added = await store.add_resources(bundle("a"))
    assert (added.version, added.create_time, added.update_time) == (1, time.now, time.now)
    assert added.resources == bundle("a")
    assert await store.get_resources_by_id(added.resources_id) == added
    assert await store.get_latest_resources() == added


async def test_an_update_is_the_next_version(store: StreamStore, time: Timeline) -> None:
    """Creation time stays, update time is now; an unknown id begins at version 1."""
    first = await store.update_resources("mine", bundle("a"))
    time.jumps(5)
    second = await store.update_resources("mine", bundle("b"))
    assert (first.version, second.version) == (1, 2)
    assert (second.create_time, second.update_time) == (time.now - 5, time.now)
    assert await store.get_resources_by_id("mine") == second


async def test_old_versions_stay(store: StreamStore) -> None:
    """What was true of a version is never changed."""
    await store.update_resources("mine", bundle("a"))
    key = store.functions(0).keys.payload("resources:mine:1")
    before = await store.connection.execute("GET", key)
    await store.update_resources("mine", bundle("b"))
    assert await store.connection.execute("GET", key) == before


async def test_the_latest_is_the_one_updated_last(store: StreamStore) -> None:
    """Whichever was made last, in the same microsecond too."""
    store.functions(0).clock_us = lambda: 1_000_000
    for resources_id in ("a", "b", "a"):
        await store.update_resources(resources_id, bundle(resources_id))
    latest = await store.get_latest_resources()
    assert latest is not None
    assert (latest.resources_id, latest.version) == ("a", 2)
    assert [one.resources_id for one in await store.query_resources()] == ["b", "a"]


async def test_the_latest_of_another_process_is_the_latest_here(store: StreamStore, settings: Settings) -> None:
    """At once, for readers and for new rollouts: nothing is remembered of what was the latest before."""
    async with await StreamStore.connect(settings=settings) as other:
        for writer, reader in ((store, other), (other, store), (store, other)):
            added = await writer.add_resources(bundle("x"))
            assert await reader.get_latest_resources() == added
            assert (await reader.enqueue_rollout("y")).resources_id == added.resources_id


async def test_a_rollout_takes_the_latest_of_its_moment(store: StreamStore) -> None:
    """Unless it names one, which need not exist; later updates do not change it."""
    await store.update_resources("a", bundle("a"))
    first = await store.enqueue_rollout("x")
    await store.update_resources("b", bundle("b"))
    requests = [EnqueueRolloutRequest(input=1), EnqueueRolloutRequest(input=2, resources_id="given")]
    second, given = await store.enqueue_many_rollouts(requests)
    started = await store.start_rollout("y")
    assert [one.resources_id for one in (first, second, given, started)] == ["a", "b", "given", "b"]
    again = await store.get_rollout_by_id(first.rollout_id)
    assert again is not None
    assert again.resources_id == "a"


@pytest.mark.parametrize("resources_id", ["rs-1", "a b/c:d{e}", "ü" * 256])
async def test_any_printable_text_is_a_resources_id(store: StreamStore, resources_id: str) -> None:
    """It comes back as it was given."""
    await store.update_resources(resources_id, bundle("a"))
    found = await store.get_resources_by_id(resources_id)
    assert found is not None
    assert found.resources_id == resources_id
    assert (await store.enqueue_rollout("x")).resources_id == resources_id


@pytest.mark.parametrize("resources_id", ["", "x" * 257, "a\nb"])
async def test_other_resources_ids_are_refused(store: StreamStore, resources_id: str) -> None:
    """Nothing is stored."""
    with pytest.raises(InvalidRequest, match="resources id"):
        await store.update_resources(resources_id, bundle("a"))
    assert await store.get_latest_resources() is None


@pytest.mark.parametrize(
    "resources",
    [None, [], {"a": {"resource_type": "nonsense"}}, {"a": {"resource_type": "llm", "model": "m"}}, {1: LLM}],
)
async def test_what_is_no_bundle_is_refused(store: StreamStore, resources: Any) -> None:
    """The error names the place, and nothing is stored."""
    with pytest.raises(InvalidRequest, match="resources"):
        await store.add_resources(resources)
    assert (await store.query_resources()).total == 0


async def test_resources_are_found_by_id(store: StreamStore) -> None:
    """Exact, by part, sorted, in pages; of each the newest version; an unknown one is None."""
    for resources_id in ("rs-a1", "rs-b1", "rs-a2"):
        await store.update_resources(resources_id, bundle(resources_id))
    await store.update_resources("rs-a1", bundle("new"))
    assert [one.resources_id for one in await store.query_resources(resources_id="rs-b1")] == ["rs-b1"]
    part = await store.query_resources(resources_id_contains="a", sort_by="resources_id", sort_order="desc")
    assert [(one.resources_id, one.version) for one in part] == [("rs-a2", 1), ("rs-a1", 2)]
    page = await store.query_resources(limit=1, offset=1)
    assert (page.total, [one.resources_id for one in page]) == (3, ["rs-a2"])
    assert await store.get_resources_by_id("rs-none") is None
