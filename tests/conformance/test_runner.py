"""Agentlightning's own runner and tracer at work."""

from __future__ import annotations

from agentlightning import LightningStoreClient, PromptTemplate
from agentlightning.types import EnqueueRolloutRequest, RolloutConfig

from tests.conformance import their_agent
from tests.conformance.compare import Both, Notes


async def test_its_runner_works_off_the_queue(both: Both) -> None:
    """Each task ends with the status, spans and numbers that it ends with on agentlightning's own server."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        url = client.server_address_root
        await client.add_resources({"p": PromptTemplate(template="t", engine="jinja")})
        made = await client.enqueue_many_rollouts(
            [EnqueueRolloutRequest(input={"kind": kind, "url": url}, mode="train") for kind in their_agent.KINDS]
        )
        await their_agent.run(url, len(made))
        for kind, rollout in zip(their_agent.KINDS, made, strict=True):
            found = await client.get_rollout_by_id(rollout.rollout_id)
            assert found
            note.value(f"{kind}: rollout", found.model_copy(update={"input": kind}))
            spans = await client.query_spans(rollout.rollout_id, "latest")
            # Spans that the agent made by itself may share a number with others.
            note.value(f"{kind}: spans", sorted(spans, key=lambda span: (span.sequence_id, span.name)))
        workers = await client.query_workers()
        note.value("workers", [(one.worker_id, one.status, one.current_rollout_id) for one in workers])
        note.value("heartbeat", [sorted(one.heartbeat_stats or {}) for one in workers])

    await both.same(scenario)


async def test_its_runner_retries(both: Both) -> None:
    """A task that fails is run again as often as its rules say."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        await client.add_resources({})
        config = RolloutConfig(max_attempts=3, retry_condition=["failed"])
        made = await client.enqueue_rollout({"kind": "raises"}, config=config)
        await their_agent.run(client.server_address_root, 3)
        await note("rollout", client.get_rollout_by_id(made.rollout_id))
        await note("attempts", client.query_attempts(made.rollout_id))
        await note("queue", client.dequeue_rollout())

    await both.same(scenario)
