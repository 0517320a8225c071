"""Sums follow the log: folded by whoever is there, once each, and never where the log cannot be trusted."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from agl_streams import Span, StreamStore, semconv
from agl_streams.config import Settings
from agl_streams.errors import ConfigError, Gap
from agl_streams.models import AttemptedRollout
from agl_workers import aggregator_main
from agl_workers.aggregator import Aggregator
from agl_workers.loops import together
from tests.support.processes import ProcessGroup
from tests.support.servers import Servers
from tests.support.waiting import until
from tests.workers.support import running, start_cli


def reward(rollout: AttemptedRollout) -> Span:
    """A reward of 1 in an attempt."""
    return Span.from_attributes(
        name=semconv.AGL_ANNOTATION,
        attributes=semconv.reward_attributes({"primary": 1.0}),
        rollout_id=rollout.rollout_id,
        attempt_id=rollout.attempt.attempt_id,
    )


async def add_rewards(store: StreamStore, rollout: AttemptedRollout, count: int) -> None:
    """Store so many rewards one by one, an event each."""
    for _ in range(count):
        await store.add_span(reward(rollout), assign_sequence=True)


async def folded(store: StreamStore, rollout: AttemptedRollout) -> int:
    """How many rewards the sums tell of."""
    return (await store.rollout_sums(rollout.rollout_id)).rewards


async def test_one_run_folds_what_is_there(store: StreamStore) -> None:
    """A run of the aggregator folds the log to its end, however many batches that takes, and the next one nothing."""
    rollout = await store.start_rollout("task")
    await add_rewards(store, rollout, 250)
    aggregator = Aggregator(store, 0)
    result = await aggregator.run_once()
    assert result.events == 253  # the rollout, its attempt, and that it runs
    assert await folded(store, rollout) == 250
    assert (await aggregator.run_once()).events == 0


async def test_sums_follow_the_log_without_anybody_asking(store: StreamStore) -> None:
    """While an aggregator runs, spans that are stored appear in the sums; what was there before does too."""
    rollout = await store.start_rollout("task")
    await add_rewards(store, rollout, 3)
    async with running(Aggregator(store, 0).run):
        for count in (3, 5, 9):
            await until(lambda: folded(store, rollout), what="sums")
            await add_rewards(store, rollout, count - await folded(store, rollout))
            await until(partial(_has_folded, store, rollout, count), what=f"{count} rewards in the sums")


async def _has_folded(store: StreamStore, rollout: AttemptedRollout, count: int) -> bool:
    return await folded(store, rollout) == count


async def test_stopping_folds_what_is_left(store: StreamStore) -> None:
    """An aggregator that is stopped folds all that is in the log at that time."""
    rollout = await store.start_rollout("task")
    stop = asyncio.Event()
    stop.set()
    await add_rewards(store, rollout, 10)
    await Aggregator(store, 0).run(stop)
    assert await folded(store, rollout) == 10


async def test_two_aggregators_fold_each_event_once(store: StreamStore, settings: Settings) -> None:
    """Two aggregators on one shard, each with a connection of its own, end with the sums of one."""
    rollouts = [await store.start_rollout(number) for number in range(3)]
    async with (
        await StreamStore.connect(settings=settings) as other,
        running(Aggregator(store, 0).run),
        running(Aggregator(other, 0).run),
    ):
        await together(*(add_rewards(store, rollout, 100) for rollout in rollouts))
        for rollout in rollouts:
            await until(partial(_has_folded, store, rollout, 100), what="all rewards in the sums")
    assert [await folded(store, rollout) for rollout in rollouts] == [100, 100, 100]


async def test_a_log_with_a_gap_ends_the_aggregator(store: StreamStore) -> None:
    """An aggregator that meets a missing event folds what is before it, and ends with an error instead of going on."""
    rollout = await store.start_rollout("task")
    await add_rewards(store, rollout, 2)
    log = store.functions(0).keys.log
    entries = await store.connection.execute("XRANGE", log, "-", "+")
    assert isinstance(entries, list)
    last = entries[-1]
    assert isinstance(last, list)
    assert isinstance(last[0], bytes)
    await store.connection.execute("XDEL", log, last[0])
    await add_rewards(store, rollout, 1)
    with pytest.raises(Gap):
        await Aggregator(store, 0).run(asyncio.Event())
    assert await folded(store, rollout) == 1


async def test_a_server_that_goes_away_is_waited_for(servers: Servers, settings: Settings) -> None:
    """An aggregator outlives a restart of its server and folds on from where it was."""
    server = servers.start(config={"appendonly": "yes", "appendfsync": "always"})
    settings = settings.model_copy(update={"redis_url": server.url})
    async with await StreamStore.connect(settings=settings) as store:
        rollout = await store.start_rollout("task")
        async with running(Aggregator(store, 0).run):
            await add_rewards(store, rollout, 5)
            server.restart()
            await add_rewards(store, rollout, 5)
            await until(partial(_has_folded, store, rollout, 10), what="all rewards in the sums")


def test_a_shard_that_is_not_there_is_refused(settings: Settings) -> None:
    """An aggregator for a shard that the namespace does not have is told which there are."""
    with pytest.raises(ConfigError, match=r"no shard 7: .* has the shards 0 to 0"):
        aggregator_main.run(settings, shards_served=[7])


async def test_an_aggregator_may_be_killed_anywhere(
    store: StreamStore, settings: Settings, processes: ProcessGroup
) -> None:
    """When a running aggregator process is killed and another started, every span is in the sums, and once."""
    rollout = await store.start_rollout("task")
    killed = start_cli(processes, settings, "aggregate", "--json", name="aggregator-1")
    killed.printed("aggregator_started")
    writing = asyncio.ensure_future(add_rewards(store, rollout, 2000))
    await until(lambda: folded(store, rollout), what="sums")
    killed.kill()
    assert not writing.done(), "it was killed while spans were written"
    follower = start_cli(processes, settings, "aggregate", "--json", name="aggregator-2")
    await writing
    await until(partial(_has_folded, store, rollout, 2000), what="all rewards in the sums")
    assert follower.terminate() == 0
    follower.printed("aggregator_stopped")
