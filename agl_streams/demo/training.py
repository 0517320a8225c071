"""The learner's loop: enqueue a batch, wait by push, spans to triplets, one gradient step, publish the new version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import numpy as np

from agl_streams.adapters import TripletAdapter
from agl_streams.demo.assignment import Assignment
from agl_streams.demo.learner import Episode, Learner, Step
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.policy import Policy
from agl_streams.demo.policy_server import push_policy
from agl_streams.demo.problems import load_problems
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.errors import AglError
from agl_streams.models import LLM, EnqueueRolloutRequest, ProxyLLM, RolloutConfig
from agl_streams.store import StreamStore

RESOURCES_ID: Final = "rs-demo"
MODEL: Final = "agl-policy"
BATCH_WITHIN_S: Final = 60.0  # a batch takes about a second; a runner that was killed adds a lease
SHOWN: Final = 5  # rollouts named in an error
MAX_ATTEMPTS: Final = 3
PUSH_TIMEOUT: Final = aiohttp.ClientTimeout(total=10.0)


class TrainingFailed(AglError):
    """The demo's training could not go on."""


@dataclass(slots=True)
class Progress:
    """What happened so far.

    Attributes:
        rewards: mean reward of each batch.
        rollout_ids: every rollout enqueued.
        triplets: model calls that the learner has learned from.
    """

    rewards: list[float] = field(default_factory=list[float])
    rollout_ids: list[str] = field(default_factory=list[str])
    triplets: int = 0


def problem_order(seed: int, count: int) -> Iterator[int]:
    """Places of ``count`` problems in a seeded order without an end; each comes up once before any comes up again."""
    rng = np.random.default_rng([seed, 1])
    while True:
        yield from (int(place) for place in rng.permutation(count))


class Training:
    """One run of the learner against a store and a policy server."""

    def __init__(
        self,
        store: StreamStore,
        options: DemoOptions,
        *,
        policy_url: str,
        proxy_url: str,
        batch_within_s: float = BATCH_WITHIN_S,
    ) -> None:
        """
        Args:
            batch_within_s: how long a batch may take.
        """
        self._store = store
        self._batch_within_s = batch_within_s
        self._options = options
        self._policy_url = policy_url
        self._proxy_url = proxy_url
        self._problems = load_problems()
        self.learner = Learner(Policy.initial(Tokenizer.load(), options.seed))
        self.progress = Progress()

    async def steps(self) -> AsyncGenerator[Step]:
        """Train; yields after each step.

        Raises:
            TrainingFailed: a batch was not finished in time, a rollout failed, or the policy server is out of reach.
            Conflict, InvalidRequest: the policy server refused the weights.
        """
        order = problem_order(self._options.seed, len(self._problems))
        async with aiohttp.ClientSession(timeout=PUSH_TIMEOUT) as session:
            await self._publish(session)
            for batch in range(self._options.batches):
                rollout_ids = await self._enqueue(batch, [next(order) for _ in range(self._options.batch_size)])
                await self._wait(rollout_ids)
                step = self.learner.step(await self._episodes(rollout_ids))
                self.progress.rewards.append(step.mean_reward)
                await self._publish(session)
                yield step

    async def _enqueue(self, batch: int, places: list[int]) -> list[str]:
        config = RolloutConfig(max_attempts=MAX_ATTEMPTS, retry_condition=["failed", "timeout", "unresponsive"])
        requests = [
            EnqueueRolloutRequest(
                rollout_id=f"batch-{batch:03}-{number:03}",
                input=Assignment(
                    problem=self._problems[place],
                    task=f"{batch}-{number}",
                    seed=self._options.seed,
                    stream=self._options.stream,
                ).as_input(),
                mode="train",
                resources_id=RESOURCES_ID,
                config=config,
            )
            for number, place in enumerate(places)
        ]
        rollouts = await self._store.enqueue_many_rollouts(requests)
        rollout_ids = [rollout.rollout_id for rollout in rollouts]
        self.progress.rollout_ids += rollout_ids
        return rollout_ids

    async def _wait(self, rollout_ids: list[str]) -> None:
        finished = await self._store.wait_for_rollouts(rollout_ids=rollout_ids, timeout=self._batch_within_s)
        missing = sorted(set(rollout_ids) - {rollout.rollout_id for rollout in finished})
        if missing:
            raise TrainingFailed(
                f"{len(missing)} rollouts were not finished in {self._batch_within_s:g} s: {missing[:5]}"
            )
        failed = [rollout.rollout_id for rollout in finished if rollout.status != "succeeded"]
        if failed:
            raise TrainingFailed(f"{len(failed)} of {len(finished)} rollouts failed, the first of them {failed[0]}")

    async def _episodes(self, rollout_ids: list[str]) -> dict[str, Episode]:
        """The model calls of each rollout's newest attempt."""
        spans = await asyncio.gather(*(self._store.query_spans(one, "latest") for one in rollout_ids))
        adapter = TripletAdapter(reward_match="final")
        episodes = [adapter.adapt(of_rollout).triplets for of_rollout in spans]
        self.progress.triplets += sum(map(len, episodes))
        return dict(zip(rollout_ids, episodes, strict=True))

    async def _publish(self, session: aiohttp.ClientSession) -> None:
        """Hand the newest weights to the policy server, then announce the version to the agents."""
        policy = self.learner.policy
        try:
            await push_policy(session, self._policy_url, policy)
        except aiohttp.ClientError as error:
            message = f"the policy server did not take version {policy.version}: {type(error).__name__}: {error}"
            raise TrainingFailed(message) from error
        await self._store.update_resources(
            RESOURCES_ID,
            {
                "llm": ProxyLLM(endpoint=f"{self._proxy_url}/v1", model=MODEL),
                "policy": LLM(endpoint=f"{self._policy_url}/v1", model=policy.fingerprint),
            },
        )
