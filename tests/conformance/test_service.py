"""The client itself: what it says of its store, how it gets into other processes, and that all of it is compared."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import aiohttp
from agentlightning import LightningStoreClient
from agentlightning.types import Span

from tests.conformance.compare import Both, Notes
from tests.conformance.differences import ALLOWED

HERE = Path(__file__).resolve().parent
TOTALS = ("total_rollouts", "total_attempts", "total_spans", "total_resources", "total_workers")


async def test_the_statistics_count_what_there_is(both: Both) -> None:
    """The totals are those of this moment, as integers, with the store's name and its age in seconds."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        async def count(label: str) -> None:
            found = await client.statistics()
            note.value(label, {name: found[name] for name in TOTALS})
            note.value(f"{label}: types", (type(found["name"]).__name__, type(found["uptime"]).__name__))

        await count("nothing")
        started = await client.start_rollout(1, worker_id="w")
        await client.enqueue_rollout(2)
        await client.start_attempt(started.rollout_id)
        await client.add_resources({})
        for number in range(3):
            ids = {"rollout_id": started.rollout_id, "attempt_id": started.attempt.attempt_id}
            await client.add_span(Span.from_attributes(attributes={}, sequence_id=number + 1, **ids))
        await count("something")

    await both.same(scenario)


async def test_the_client_says_what_it_can(both: Both) -> None:
    """Capabilities and the place for traces are the client's own, and the place exists on both servers."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        note.value("capabilities", dict(client.capabilities))
        endpoint = client.otlp_traces_endpoint()
        note.value("endpoint", endpoint.removeprefix(client.server_address_root))
        async with aiohttp.ClientSession() as session:
            headers = {"content-type": "application/x-protobuf"}
            async with session.post(endpoint, data=b"", headers=headers) as answer:
                note.value("empty export", (answer.status, answer.content_type, await answer.read()))

    await both.same(scenario)


async def test_a_copy_in_another_process_works(both: Both) -> None:
    """A pickled client reaches the same server."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        copy: LightningStoreClient = pickle.loads(pickle.dumps(client))
        try:
            await note("enqueued", copy.enqueue_rollout(1))
        finally:
            await copy.close()
        await note("dequeued", client.dequeue_rollout())

    await both.same(scenario)


def test_every_method_of_the_client_is_compared() -> None:
    """Each public method of the real client is called by some scenario."""
    text = "".join(path.read_text() for path in (*HERE.glob("test_*.py"), HERE / "compare.py"))
    called = set(re.findall(r"client\.(\w+)", text))
    public = {name for name, _ in inspect.getmembers(LightningStoreClient) if not name.startswith("_")}
    assert public - called == set()


def test_each_allowed_difference_is_documented() -> None:
    """The reason of a difference is in docs/differences.md, and the test that meets it exists."""
    document = (HERE.parents[1] / "docs/differences.md").read_text()
    reasons = {one.reason for found in ALLOWED.values() for one in found}
    assert {reason for reason in reasons if reason not in document} == set()
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    assert {name for name in ALLOWED if f"def {name.partition('[')[0]}(" not in tests} == set()
