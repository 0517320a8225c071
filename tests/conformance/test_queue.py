"""Putting rollouts on the queue, taking them off, and making them outside it."""

from __future__ import annotations

from agentlightning import LightningStoreClient
from agentlightning.types import LLM, EnqueueRolloutRequest, RolloutConfig

from tests.conformance.compare import Both, Notes

CONFIG = RolloutConfig(
    timeout_seconds=60, unresponsive_seconds=12.5, max_attempts=3, retry_condition=["timeout", "failed"]
)
MODEL = LLM(endpoint="http://localhost:8000/v1", model="m")


async def test_a_rollout_is_enqueued_with_all_that_it_was_given(both: Both) -> None:
    """A stored rollout has the input, mode, resources, rules and metadata of its request, or their defaults."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("bare", client.enqueue_rollout(None))
        await note("nested", client.enqueue_rollout({"a": [1, 2.0, None, True, {"é": "\u2028"}], "big": 2**60}))
        full = await note(
            "full",
            client.enqueue_rollout(
                "text", mode="train", resources_id="given", config=CONFIG, metadata={"k": {"n": 1}, "none": None}
            ),
        )
        await note("read back", client.get_rollout_by_id(full.rollout_id))
        for mode in ("val", "test"):
            await note(mode, client.enqueue_rollout([], mode=mode))

    await both.same(scenario)


async def test_many_rollouts_are_enqueued_in_order(both: Both) -> None:
    """A bulk enqueue answers in the order of its requests, and the queue keeps that order."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("none", client.enqueue_many_rollouts([]))
        requests = [EnqueueRolloutRequest(input=number) for number in range(5)]
        requests[3] = EnqueueRolloutRequest(input=3, mode="val", config=CONFIG, metadata={"i": 3}, resources_id="r")
        await note("many", client.enqueue_many_rollouts(requests))
        await note("one more", client.enqueue_rollout("later"))
        await note("taken", client.dequeue_many_rollouts(limit=4))
        await note("the rest", client.dequeue_many_rollouts(limit=10))
        await note("empty", client.dequeue_many_rollouts(limit=10))

    await both.same(scenario)


async def test_a_dequeue_opens_an_attempt(both: Both) -> None:
    """A dequeued rollout is preparing, with a first attempt of the worker that took it."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("empty", client.dequeue_rollout())
        await note("empty, named", client.dequeue_rollout(worker_id="w-0"))
        for number in range(3):
            await client.enqueue_rollout(number)
        await note("anonymous", client.dequeue_rollout())
        taken = await note("named", client.dequeue_rollout(worker_id="w-1"))
        await note("read back", client.get_rollout_by_id(taken.rollout_id))
        await note("attempt", client.get_latest_attempt(taken.rollout_id))
        await note("worker", client.get_worker_by_id("w-1"))
        await note("zero", client.dequeue_many_rollouts(limit=0))
        await note("negative", client.dequeue_many_rollouts(limit=-1))
        await note("one of many", client.dequeue_many_rollouts(limit=1, worker_id="w-2"))

    await both.same(scenario)


async def test_the_latest_resources_are_those_of_a_rollout(both: Both) -> None:
    """A rollout without resources gets the latest of the moment at which it is made."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("before", client.enqueue_rollout(0))
        await note("resources", client.add_resources({"llm": MODEL}))
        await note("enqueued", client.enqueue_rollout(1))
        await note("started", client.start_rollout(2))
        await note("named", client.enqueue_rollout(3, resources_id="mine"))
        await note("updated", client.update_resources("mine", {"llm": MODEL}))
        await note("after update", client.enqueue_rollout(4))
        await note("all taken", client.dequeue_many_rollouts(limit=10))

    await both.same(scenario)


async def test_a_rollout_is_started_outside_the_queue(both: Both) -> None:
    """A started rollout has its attempt at once and is never dequeued."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await note("bare", client.start_rollout({"x": 1}))
        started = await note(
            "full",
            client.start_rollout("x", mode="test", resources_id="r", config=CONFIG, metadata={"m": 1.5}, worker_id="w"),
        )
        note.value("same moment", started.start_time == started.attempt.start_time)
        await note("read back", client.get_rollout_by_id(started.rollout_id))
        await note("worker", client.get_worker_by_id("w"))
        await note("queue", client.dequeue_rollout())

    await both.same(scenario)


async def test_further_attempts_are_started(both: Both) -> None:
    """An attempt may be added to a rollout in any state; it becomes the newest, and the rollout is preparing."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        queued = await client.enqueue_rollout(1)
        await note("of a queued one", client.start_attempt(queued.rollout_id))
        await note("its queue entry is void", client.dequeue_rollout())
        await note("second", client.start_attempt(queued.rollout_id, worker_id="w"))
        await note("attempts", client.query_attempts(queued.rollout_id))
        await client.update_attempt(queued.rollout_id, "latest", status="succeeded")
        await note("finished", client.get_rollout_by_id(queued.rollout_id))
        await note("third", client.start_attempt(queued.rollout_id, worker_id="v"))
        await note("open again", client.get_rollout_by_id(queued.rollout_id))
        await note("unknown", client.start_attempt("ro-unknown"))
        await note("unknown, named", client.start_attempt("ro-unknown", worker_id="w"))

    await both.same(scenario)
