"""Each side reads what the other side's agents emit."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from agentlightning import LightningStoreClient
from agentlightning.emitter import (
    find_final_reward,
    find_reward_spans,
    get_message_value,
    get_object_value,
    get_reward_value,
    get_rewards_from_span,
)
from agentlightning.types import PromptTemplate, Span

from tests.conformance import their_agent
from tests.conformance.conftest import HERE, ROOT, OurServer
from tests.support.processes import ProcessGroup
from tests.support.waiting import until


@pytest.fixture
async def client(our_server: OurServer) -> AsyncGenerator[LightningStoreClient]:
    """Their client at our server."""
    client = LightningStoreClient(our_server.url)
    yield client
    await client.close()


async def test_ours_read_what_theirs_emit(our_server: OurServer, our_python: str, client: LightningStoreClient) -> None:
    """Whatever agentlightning's emitters emit means the same to our readers."""
    await client.add_resources({"p": PromptTemplate(template="t", engine="jinja")})
    ids = [(await client.enqueue_rollout({"kind": kind})).rollout_id for kind in ("emits", "number")]
    await their_agent.run(our_server.url, len(ids))
    command = [our_python, str(HERE / "our_reader.py"), our_server.redis, our_server.namespace, *ids]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    everything, number = map(json.loads, done.stdout.splitlines())

    spans = list(await client.query_spans(ids[0]))
    rewards = [value for span in spans if (value := get_reward_value(span)) is not None]
    assert rewards == [0.75]
    assert everything["names"] == [span.name for span in spans]
    assert everything["rewards"] == rewards
    assert everything["messages"] == [text for span in spans if (text := get_message_value(span)) is not None]
    assert everything["messages"] == ["thinking é"]
    assert [json.loads(text) for text in everything["objects"]] == objects_of(spans)
    assert everything["exceptions"] == [["KeyError", "'missing'"]]
    assert [one["agentlightning.operation.input.x"] for one in everything["operations"]] == [1]
    assert everything["sums"] == {"spans": len(spans), "rewards": 1, "reward": 0.75}

    assert number["rewards"] == [0.25]
    assert number["sums"] == {"spans": 1, "rewards": 1, "reward": 0.25}


def objects_of(spans: list[Span]) -> list[Any]:
    """What their reader makes of the objects that were emitted as JSON."""
    emitted = [span for span in spans if "agentlightning.object.json" in span.attributes]
    assert emitted
    return [get_object_value(span) for span in emitted]


async def test_theirs_read_what_ours_emit(
    our_server: OurServer, our_python: str, client: LightningStoreClient, processes: ProcessGroup
) -> None:
    """What our agents emit, run by our worker, means the same to agentlightning's readers."""
    rollout_id = (await client.enqueue_rollout({"x": 1}, mode="train")).rollout_id
    server = ["--redis-url", our_server.redis, "--namespace", our_server.namespace]
    agent = "tests.conformance.our_agent:agent"
    worker = processes.start(our_python, "-m", "agl_streams.cli", "worker", agent, "--max-rollouts", "1", *server)
    (rollout,) = await until(
        lambda: client.wait_for_rollouts(rollout_ids=[rollout_id], timeout=0.1), timeout_s=60, what="the rollout's end"
    )
    assert rollout.status == "succeeded", worker.output

    spans = list(await client.query_spans(rollout_id, "latest"))
    assert [one.value for span in find_reward_spans(spans) for one in get_rewards_from_span(span)] == [
        0.25,
        0.75,
        2.0,
        1.0,
    ]
    assert [get_rewards_from_span(span)[0].name for span in find_reward_spans(spans)] == [
        "primary",
        "accuracy",
        "primary",
    ]
    assert find_final_reward(spans) == 1.0
    assert [text for span in spans if (text := get_message_value(span)) is not None] == ["thinking é"]
    (raised,) = [span for span in spans if span.name == "agentlightning.exception"]
    assert (raised.attributes["exception.type"], raised.attributes["exception.message"]) == ("KeyError", "'missing'")
    assert [span.sequence_id for span in spans] == sorted(span.sequence_id for span in spans)
    worker.wait()
