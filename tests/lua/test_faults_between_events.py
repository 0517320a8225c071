"""An error at any event of any command leaves log and projections in agreement, and the command can be repeated."""

from __future__ import annotations

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.errors import CommandFailed, NotFound
from agl_streams.fold import fold
from agl_streams.lifecycle import FINISHED
from agl_streams.replay import read_history, rebuild
from agl_streams.store import StreamStore
from tests.support.faults_in_lua import use_faulty_library
from tests.support.rebuild import assert_equal_content, durable_content, folded_content
from tests.support.scenario import Scenario

pytestmark = pytest.mark.leaves_pending  # the story ends with entries handed over and never begun

MOST_EVENTS = 60  # above the number that the story writes


async def tell_with_fault(store: StreamStore, events: int) -> bool:
    """Tell the story with an error after so many events; the step that met it is repeated. Whether any did."""
    scenario, errors = Scenario(), list[str]()
    scenario.use_clock(store)
    await use_faulty_library(store, events)
    for step in scenario.steps():
        try:
            await step(store)
        except CommandFailed as error:
            errors.append(error.detail)
            await step(store)
        except NotFound:
            assert errors  # what the story goes on with was not begun: it waits for the watchdog
    assert all("a fault at this event" in error for error in errors)
    assert len(errors) <= 1
    return bool(errors)


async def check(store: StreamStore, url: str, settings: Settings) -> None:
    """Events are dense, and projections are what they say: by the fold in Python, and by a rebuild."""
    history = [one async for one in read_history(store, 0)]
    folded = fold(event for event, _ in history)
    content = durable_content(url, store.settings.namespace)
    assert_equal_content(content, folded_content(history, folded, 0, 1), ("the server", "the fold in Python"))
    async with await StreamStore.connect(settings=settings) as target:
        await rebuild(store, target)
    assert_equal_content(content, durable_content(url, settings.namespace), ("original", "rebuilt"))
    waiting = {rollout_id for rollout_id, row in folded.rollouts.items() if row["status"] in ("queuing", "requeuing")}
    assert sorted(folded.queue.values()) == sorted(waiting)
    assert {rollout_id for rollout_id, _ in folded.finished.values()} == {
        rollout_id for rollout_id, row in folded.rollouts.items() if row["status"] in FINISHED
    }
    for rollout_id, row in folded.rollouts.items():
        assert row["status"] not in ("preparing", "running") or row.get("latest"), f"{rollout_id} has no attempt"


@pytest.mark.timeout(300)
async def test_an_error_at_any_event_leaves_log_and_projections_in_agreement(settings: Settings) -> None:
    """For every event of a history with every command: an error in its place loses and doubles nothing."""
    url = settings.redis_url or ""
    events = 0
    while True:
        names = [f"{settings.namespace}-{events}", f"{settings.namespace}-{events}-rebuilt"]
        here, other = (load_settings(redis_url=url, namespace=name) for name in names)
        async with await StreamStore.connect(settings=here) as store:
            met = await tell_with_fault(store, events)
            await check(store, url, other)
        if not met:
            break
        events += 1
    assert 30 < events < MOST_EVENTS
