"""Each command may be carried out and its reply be lost: then it comes again, and nothing happens twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.library import library
from agl_streams.replay import rebuild
from agl_streams.store import StreamStore
from tests.support.cutting import CuttingRelay, cutting_relay
from tests.support.rebuild import assert_equal_content, durable_content, with_plain_ids
from tests.support.scenario import Scenario
from tests.support.spans import reward

pytestmark = pytest.mark.leaves_pending  # the story ends with entries handed over and never begun


def commands_of(relay: CuttingRelay) -> set[str]:
    """The commands whose replies were dropped."""
    names = [call.split(b"\r\n")[4].decode() for call in relay.cut]
    return {name.split("_", 3)[3] for name in names}


async def tell(url: str, settings: Settings) -> None:
    """Tell the whole story on a namespace."""
    scenario = Scenario()
    async with await StreamStore.connect(url, settings=settings) as store:
        scenario.use_clock(store)
        for step in scenario.steps():
            await step(store)


async def test_a_history_whose_every_reply_was_lost_once_ends_the_same(
    settings: Settings, redis_url: str, tmp_path: Path
) -> None:
    """The durable content is that of the same history without a fault, event for event."""
    await tell(redis_url, settings)
    other = load_settings(redis_url=redis_url, namespace=f"{settings.namespace}-cut")
    async with cutting_relay(redis_url, tmp_path) as (relay, url):
        await tell(url, other)
    writing = {name for name, command in library().commands.items() if "no-writes" not in command.flags}
    assert commands_of(relay) == writing - {"replay", "arm", "mark"}  # mark is sent only where replicas are waited for
    plain, cut = (with_plain_ids(durable_content(redis_url, one.namespace)) for one in (settings, other))
    assert_equal_content(plain, cut, ("without faults", "with lost replies"))


async def test_a_rebuild_whose_every_reply_was_lost_once_ends_the_same(
    settings: Settings, redis_url: str, tmp_path: Path
) -> None:
    """Replayed events that come again are passed over."""
    await tell(redis_url, settings)
    other = load_settings(redis_url=redis_url, namespace=f"{settings.namespace}-cut")
    async with (
        cutting_relay(redis_url, tmp_path) as (relay, url),
        await StreamStore.connect(settings=settings) as source,
        await StreamStore.connect(url, settings=other) as target,
    ):
        await rebuild(source, target)
    assert {"replay", "arm", "fold", "setup"} == commands_of(relay)
    original, rebuilt = (durable_content(redis_url, one.namespace) for one in (settings, other))
    assert_equal_content(original, rebuilt, ("original", "rebuilt"))


async def test_spans_that_travel_together_lose_their_reply_together(
    settings: Settings, redis_url: str, tmp_path: Path
) -> None:
    """Many callers at once: each gets the number of its own span, each span is stored once."""
    async with (
        cutting_relay(redis_url, tmp_path) as (_, url),
        await StreamStore.connect(url, settings=settings) as store,
    ):
        attempts = [await store.start_rollout(number) for number in range(3)]
        spans = [
            reward(0, 1.0, span_id=f"s{number}", rollout_id=one.rollout_id, attempt_id=one.attempt.attempt_id)
            for number in range(30)
            for one in attempts
        ]
        stored = await asyncio.gather(*(store.add_span(span, assign_sequence=True) for span in spans))
        await store.settle()
        for one in attempts:
            numbers = {span.span_id: span.sequence_id for span in stored if span and span.rollout_id == one.rollout_id}
            assert sorted(numbers.values()) == list(range(1, 31))
            found = {span.span_id: span.sequence_id for span in await store.query_spans(one.rollout_id)}
            assert found == numbers
            assert (await store.rollout_sums(one.rollout_id)).rewards == 30
