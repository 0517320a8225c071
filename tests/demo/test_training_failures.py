"""Training that cannot go on says why: work that nobody does, work that fails, a policy server that is away."""

from __future__ import annotations

import asyncio

import pytest

from agl_streams.config import Settings
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.training import MAX_ATTEMPTS, Training, TrainingFailed
from agl_streams.store import StreamStore
from tests.demo.serving import served, untrained
from tests.support.servers import free_port
from tests.support.waiting import until

BATCH_SIZE = 2
SEED = 5


def training_on(store: StreamStore, settings: Settings, policy_url: str) -> Training:
    """Training of one small batch."""
    options = DemoOptions(settings=settings, seed=SEED, batches=1, batch_size=BATCH_SIZE)
    return Training(store, options, policy_url=policy_url, proxy_url=policy_url)


async def fail_all(store: StreamStore) -> None:
    """Be the runner whose agent fails every time."""
    for _ in range(BATCH_SIZE * MAX_ATTEMPTS):
        taken = await until(lambda: store.dequeue_rollout(worker_id="clumsy"), what="work")
        assert taken
        await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="failed")


async def test_a_batch_that_nobody_works_on_is_an_error(store: StreamStore, settings: Settings) -> None:
    """Without a runner training ends when the time is over, and names rollouts that are missing."""
    async with served(untrained(SEED)) as server:
        training = Training(
            store,
            DemoOptions(settings=settings, seed=SEED, batches=1, batch_size=BATCH_SIZE),
            policy_url=server.url,
            proxy_url=server.url,
            batch_within_s=0.01,
        )
        with pytest.raises(TrainingFailed, match=r"2 rollouts were not finished in 0\.01 s: \['batch-000-000'"):
            await anext(training.steps())


async def test_a_rollout_that_failed_is_an_error(store: StreamStore, settings: Settings) -> None:
    """When a rollout has used up its attempts training ends and names it."""
    async with served(untrained(SEED)) as server:
        training = training_on(store, settings, server.url)
        with pytest.raises(TrainingFailed, match="2 of 2 rollouts failed, the first of them batch-000-00"):
            await asyncio.gather(anext(training.steps()), fail_all(store))


async def test_a_policy_server_that_is_away_is_an_error(store: StreamStore, settings: Settings) -> None:
    """When the weights cannot be handed over training ends and says to whom."""
    training = training_on(store, settings, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(TrainingFailed, match="the policy server did not take version 1: ClientConnector"):
        await anext(training.steps())
