"""An agent written with agentlightning that does all that an agent can, and a process of its runner for it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import urllib.request
from typing import Any

import agentlightning as agl
from agentlightning.types import AttemptedRollout, NamedResources, Rollout, RolloutRawResult, Span
from agentlightning.utils.otel import make_link_attributes, make_tag_attributes

from tests.support.waiting import until_blocking

KINDS = (
    "number",
    "whole number",
    "nothing",
    "emits",
    "core fields",
    "spans",
    "empty list",
    "raises",
    "wrong result",
    "heartbeat",
)
POLL_S = 0.1
HEARTBEAT_S = 0.2


class Agent(agl.LitAgent[Any]):
    """Does what its task names."""

    def rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutRawResult:
        """Run one task."""
        match task["kind"]:
            case "number":
                return 0.25
            case "whole number":
                return 1
            case "emits":
                emit_everything()
            case "core fields":
                return [agl.emit_reward(0.5, propagate=False), agl.emit_annotation({"a": {"b": 1}}, propagate=False)]
            case "spans":
                return [own_span(rollout, number) for number in (1, 2)]
            case "empty list":
                return []
            case "raises":
                raise ValueError("this task cannot be done")
            case "wrong result":
                return "text"  # pyright: ignore[reportReturnType] — what a careless agent does
            case "heartbeat":
                until_blocking(lambda: has_heartbeat(task["url"]), what="the runner's heartbeat")
            case _:
                return None
        return None


def has_heartbeat(url: str) -> bool:
    """Whether every worker of a server has told how it is."""
    with urllib.request.urlopen(f"{url}/v1/agl/workers") as answer:
        workers = json.load(answer)["items"]
    return all(worker["heartbeat_stats"] for worker in workers)


def emit_everything() -> None:
    """One span of each kind that agentlightning has an emitter for."""
    agl.emit_message("thinking é", {"level": "debug"})
    agl.emit_object({"answer": [1, 2.0, None]})
    agl.emit_object("text")
    try:
        raise KeyError("missing")
    except KeyError as error:
        agl.emit_exception(error)
    with agl.operation(kind="think", name="plan") as operation:
        operation.set_input("positional", x=1, nested={"y": [1, 2]})
        operation.set_output({"z": 2})
    agl.emit_annotation(make_tag_attributes(["fast", "cheap"]) | make_link_attributes({"gen_ai.response.id": "r-1"}))
    agl.emit_reward({"accuracy": 0.75, "speed": 2}, primary_key="accuracy")


def own_span(rollout: Rollout, number: int) -> Span:
    """A span that the agent makes by itself."""
    assert isinstance(rollout, AttemptedRollout)
    return Span.from_attributes(
        attributes={"number": number},
        rollout_id=rollout.rollout_id,
        attempt_id=rollout.attempt.attempt_id,
        sequence_id=number,
        name="own",
    )


async def _run(url: str, count: int) -> None:
    runner = agl.LitAgentRunner[Any](
        tracer=agl.OtelTracer(), max_rollouts=count, poll_interval=POLL_S, heartbeat_interval=HEARTBEAT_S
    )
    store = agl.LightningStoreClient(url)
    with runner.run_context(agent=Agent(), store=store):
        await runner.iter()
    await store.close()


def _run_in_child(url: str, count: int) -> None:
    asyncio.run(_run(url, count))


async def run(url: str, count: int) -> None:
    """Run ``count`` rollouts with agentlightning's runner, in a process of its own: it sets the process's tracer."""
    # A fork has what takes ten seconds to import; agentlightning's own trainer forks its runners too.
    process = multiprocessing.get_context("fork").Process(target=_run_in_child, args=(url, count))
    process.start()
    await asyncio.to_thread(process.join, 90)
    assert process.exitcode == 0, f"the runner ended with {process.exitcode}"
