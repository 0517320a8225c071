"""Parameters that Agent-lightning has renamed, under their old names, on both stores."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from agl_streams.client import StoreClient
from agl_streams.connect import Store
from agl_streams.errors import InvalidRequest
from agl_streams.models import PaginatedResult, Rollout
from agl_streams.store import StreamStore


@pytest.fixture(params=["beside Redis", "behind a server"])
async def either(request: pytest.FixtureRequest, store: StreamStore, server_url: str) -> AsyncGenerator[Store]:
    """A store of either kind with a queued, a running and a cancelled rollout."""
    for rollout_id in ("running", "queued", "cancelled"):
        await store.enqueue_rollout("x", rollout_id=rollout_id)
    await store.dequeue_rollout()
    await store.cancel_rollout("cancelled", "not wanted")
    if request.param == "beside Redis":
        yield store
        return
    async with await StoreClient.connect(server_url) as client:
        yield client


def ids(rollouts: PaginatedResult[Rollout]) -> list[str]:
    """Their ids, in order."""
    return [rollout.rollout_id for rollout in rollouts]


async def test_status_means_status_in(either: Store) -> None:
    """The same rollouts, and a warning at the caller's line that names what to write."""
    with pytest.warns(DeprecationWarning, match=r"^status is deprecated, use status_in instead$") as caught:
        found = await either.query_rollouts(status=["queuing", "cancelled"])
    assert ids(found) == ids(await either.query_rollouts(status_in=["queuing", "cancelled"])) == ["queued", "cancelled"]
    assert [one.filename for one in caught] == [__file__]


async def test_rollout_ids_means_rollout_id_in(either: Store) -> None:
    """The same rollouts, and a warning at the caller's line that names what to write."""
    with pytest.warns(DeprecationWarning, match=r"^rollout_ids is deprecated, use rollout_id_in instead$") as caught:
        found = await either.query_rollouts(rollout_ids=["queued", "unknown"])
    assert ids(found) == ids(await either.query_rollouts(rollout_id_in=["queued", "unknown"])) == ["queued"]
    assert [one.filename for one in caught] == [__file__]


async def by_old_names(store: Store, **filters: Any) -> list[str]:
    """The ids that a query gives which uses at least one old name."""
    with pytest.warns(DeprecationWarning, match="is deprecated, use"):
        return ids(await store.query_rollouts(**filters))


async def test_the_new_name_counts_where_both_are_given(either: Store) -> None:
    """Of either pair."""
    assert await by_old_names(either, status_in=["queuing"], status=["cancelled"]) == ["queued"]
    assert await by_old_names(either, rollout_id_in=["queued"], rollout_ids=["cancelled"]) == ["queued"]


async def test_old_names_join_with_new_filters(either: Store) -> None:
    """They are filters like any other: joined by and, or by or, and an empty list matches nothing."""
    assert await by_old_names(either, status=["queuing"], rollout_id_contains="ue") == ["queued"]
    found = await by_old_names(either, status=["cancelled"], rollout_id_contains="run", filter_logic="or")
    assert found == ["running", "cancelled"]
    assert await by_old_names(either, status=[]) == []
    assert await by_old_names(either, rollout_ids=[]) == []


async def test_a_bad_value_is_refused_under_the_old_name_too(either: Store) -> None:
    """An unknown status is no status by any name."""
    with pytest.raises(InvalidRequest, match="status_in"):
        await by_old_names(either, status=["done"])


async def test_new_names_warn_of_nothing(either: Store) -> None:
    """Whoever writes the new names hears nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await either.query_rollouts(status_in=["queuing"], rollout_id_in=["queued"])
