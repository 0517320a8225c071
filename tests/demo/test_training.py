"""Training over the real store, proxy, policy server and runner: what the learner used is what the spans say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from agl_proxy.app import ProxyApp, ProxyOptions
from agl_proxy.serving import Server, listen
from agl_streams.adapters import TripletAdapter
from agl_streams.agent import AttemptContext, rollout
from agl_streams.config import Settings
from agl_streams.demo.agent import solve
from agl_streams.demo.learner import Learner, Step, gradient_from_episodes, reward_of
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.policy import Policy
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.demo.training import RESOURCES_ID, Training
from agl_streams.models import LLM, Triplet
from agl_streams.store import StreamStore
from agl_workers.runner import Runner
from tests.demo.serving import served
from tests.support.waiting import until

SEED = 11
BATCHES = 3
BATCH_SIZE = 6

Episodes = dict[str, list[Triplet]]


@dataclass
class Trained:
    """A run of the learner: what it did, and the store that holds what happened."""

    steps: list[Step]
    training: Training
    settings: Settings

    def batch(self, number: int) -> list[str]:
        """The rollouts of a batch."""
        return self.training.progress.rollout_ids[number * BATCH_SIZE : (number + 1) * BATCH_SIZE]


@rollout
async def solve_at_the_second_try(task: dict[str, Any], llm: LLM, context: AttemptContext) -> float:
    """The demo's agent, whose every second task breaks off after all its calls, the first time."""
    reward = await solve(task, llm)
    if context.attempt.sequence_id == 1 and int(task["task"].rpartition("-")[2]) % 2:
        raise RuntimeError("broken off by the test")
    return reward


@asynccontextmanager
async def proxied(store: StreamStore, upstream: str) -> AsyncGenerator[str]:
    """The proxy on a free port."""
    async with ProxyApp(store, ProxyOptions(upstream=upstream)) as app:
        listener = listen("127.0.0.1", 0)
        server = Server(app)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started, what="the proxy to listen")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def train(settings: Settings, *, stream: bool, agent: Callable[..., Any] = solve) -> Trained:
    """Train for some small batches in the namespace of the settings."""
    options = DemoOptions(settings=settings, seed=SEED, stream=stream, batches=BATCHES, batch_size=BATCH_SIZE)
    async with (
        await StreamStore.connect(settings=settings) as store,
        served(Policy.initial(Tokenizer.load(), SEED)) as server,
        proxied(store, server.url) as proxy_url,
    ):
        stop = asyncio.Event()
        runner = asyncio.create_task(Runner(store, agent, worker_id="worker-1", concurrency=BATCH_SIZE).run(stop))
        try:
            training = Training(store, options, policy_url=server.url, proxy_url=proxy_url)
            steps = [step async for step in training.steps()]
        finally:
            stop.set()
            await runner
    return Trained(steps, training, settings)


async def episodes_in_the_store(trained: Trained, number: int) -> Episodes:
    """The triplets of a batch's newest attempts, read by somebody who knows nothing but the store."""
    async with await StreamStore.connect(settings=trained.settings) as store:
        spans = {rollout_id: await store.query_spans(rollout_id, "latest") for rollout_id in trained.batch(number)}
    return {
        rollout_id: TripletAdapter(reward_match="final").adapt(found).triplets for rollout_id, found in spans.items()
    }


def substance(episodes: Episodes) -> dict[str, list[Any]]:
    """What the triplets say, without the ids of spans, attempts and answers."""
    return {
        rollout_id: [(triplet.prompt, triplet.response, triplet.reward) for triplet in triplets]
        for rollout_id, triplets in episodes.items()
    }


@pytest.fixture
def elsewhere(settings: Settings) -> Settings:
    """A second namespace, for a second run."""
    return settings.model_copy(update={"namespace": f"{settings.namespace}-b"})


async def test_the_gradient_equals_one_computed_from_the_spans_alone(settings: Settings) -> None:
    """Starting from the untrained policy, the spans in the store give each gradient that the learner used, exactly."""
    trained = await train(settings, stream=True)
    again = Learner(Policy.initial(Tokenizer.load(), SEED))
    for number, step in enumerate(trained.steps):
        episodes = await episodes_in_the_store(trained, number)
        batch = [episodes[rollout_id] for rollout_id in sorted(episodes)]
        assert np.array_equal(gradient_from_episodes(again.policy, batch), step.gradient)
        assert again.step(episodes).mean_reward == step.mean_reward
    assert np.array_equal(again.policy.weights, trained.training.learner.policy.weights)
    assert any(step.gradient.any() for step in trained.steps)


async def test_the_gradient_is_the_slope_of_the_weighed_log_probabilities(settings: Settings) -> None:
    """A gradient agrees with finite differences of the objective, written here anew from the triplets."""
    trained = await train(settings, stream=True)
    policy = Policy.initial(Tokenizer.load(), SEED)
    episodes = [triplets for triplets in (await episodes_in_the_store(trained, 0)).values() if triplets]
    rewards = [reward_of(triplets) for triplets in episodes]

    def objective(shift: float, direction: Any) -> float:
        moved = Policy(policy.tokenizer, policy.weights + shift * direction, policy.version)
        total = 0.0
        for triplets, reward in zip(episodes, rewards, strict=True):
            baseline = (sum(rewards) - reward) / (len(rewards) - 1)
            for triplet in triplets:
                prompt, response = triplet.prompt.token_ids, triplet.response.token_ids
                score = sum(moved.logprobs([*prompt, *response[:place]])[token] for place, token in enumerate(response))
                total += (reward - baseline) * float(score) / len(episodes)
        return total

    direction = np.random.default_rng(0).normal(size=policy.weights.shape)
    slope = (objective(1e-5, direction) - objective(-1e-5, direction)) / 2e-5
    assert slope == pytest.approx(float((trained.steps[0].gradient * direction).sum()), rel=1e-4)


async def test_recorded_log_probabilities_are_those_of_the_version_that_answered(settings: Settings) -> None:
    """Every recorded log-probability is, to the last bit, that of the policy version the batch was sampled from."""
    trained = await train(settings, stream=True)
    learner = Learner(Policy.initial(Tokenizer.load(), SEED))
    for number in range(BATCHES):
        episodes = await episodes_in_the_store(trained, number)
        for triplet in (triplet for triplets in episodes.values() for triplet in triplets):
            prompt, response = triplet.prompt.token_ids, triplet.response.token_ids
            expected = [
                float(learner.policy.logprobs([*prompt, *response[:place]])[token])
                for place, token in enumerate(response)
            ]
            assert triplet.response.logprobs == expected
            assert triplet.metadata["system_fingerprint"] == learner.policy.fingerprint
        learner.step(episodes)


async def test_both_modes_of_the_model_call_train_the_same(settings: Settings, elsewhere: Settings) -> None:
    """With a seed, streamed and whole answers give equal triplets apart from ids, and so equal weights."""
    one, other = await train(settings, stream=True), await train(elsewhere, stream=False)
    for number in range(BATCHES):
        found = [substance(await episodes_in_the_store(trained, number)) for trained in (one, other)]
        assert found[0] == found[1]
    assert np.array_equal(one.training.learner.policy.weights, other.training.learner.policy.weights)


async def test_a_repeated_attempt_samples_the_same(settings: Settings, elsewhere: Settings) -> None:
    """An attempt that breaks off and is repeated gives the triplets that it would have given at once."""
    smooth, broken = (
        await train(settings, stream=True),
        await train(elsewhere, stream=True, agent=solve_at_the_second_try),
    )
    async with await StreamStore.connect(settings=elsewhere) as store:
        attempts = [len((await store.query_attempts(rollout_id)).items) for rollout_id in broken.batch(0)]
    assert sorted(attempts) == [1, 1, 1, 2, 2, 2]
    for number in range(BATCHES):
        found = [substance(await episodes_in_the_store(trained, number)) for trained in (smooth, broken)]
        assert found[0] == found[1]


async def test_each_version_is_announced_as_resources(settings: Settings) -> None:
    """After each step the store's resources name the new version, and their own version counts along."""
    trained = await train(settings, stream=False)
    async with await StreamStore.connect(settings=settings) as store:
        latest = await store.get_latest_resources()
    assert latest is not None
    assert (latest.resources_id, latest.version) == (RESOURCES_ID, BATCHES + 1)
    policy = latest.resources["policy"]
    assert isinstance(policy, LLM)
    assert policy.model == trained.training.learner.policy.fingerprint == f"agl-policy-{BATCHES + 1}"
