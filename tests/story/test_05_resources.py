"""Chapter 5: resources are what rollouts run against, such as a model or a prompt; they are named and versioned."""

from __future__ import annotations

import pytest

from agl_streams import LLM, InvalidRequest, NamedResources, PromptTemplate, ProxyLLM, StreamStore


async def test_resources_are_stored_under_an_id(store: StreamStore) -> None:
    """A new bundle of resources gets an id and version 1, and comes back as it was given."""
    given: NamedResources = {
        "main": LLM(endpoint="http://localhost:8000/v1", model="tiny"),
        "prompt": PromptTemplate(template="Solve: {task}", engine="f-string"),
    }

    stored = await store.add_resources(given)

    assert (stored.resources_id[:3], stored.version) == ("rs-", 1)
    found = await store.get_resources_by_id(stored.resources_id)
    assert found is not None
    assert found.resources == given


async def test_an_update_is_the_next_version(store: StreamStore) -> None:
    """Updating a bundle raises its version and makes it the latest of the namespace."""
    first = await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="step-1")})
    await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="another")})

    second = await store.update_resources(
        first.resources_id, {"main": LLM(endpoint="http://localhost:8000/v1", model="step-2")}
    )

    assert (second.version, second.create_time) == (2, first.create_time)
    assert await store.get_latest_resources() == second


async def test_a_rollout_runs_against_the_latest_of_its_moment(store: StreamStore) -> None:
    """A rollout takes the latest resources when it is enqueued, and keeps them when newer ones come."""
    old = await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="old")})
    rollout = await store.enqueue_rollout("task")
    await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="new")})

    taken = await store.dequeue_rollout()

    assert taken is not None
    assert taken.resources_id == rollout.resources_id == old.resources_id


async def test_a_rollout_may_name_its_resources(store: StreamStore) -> None:
    """Resources that are given with a rollout win over the latest ones."""
    chosen = await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="chosen")})
    await store.add_resources({"main": LLM(endpoint="http://localhost:8000/v1", model="latest")})

    rollout = await store.enqueue_rollout("task", resources_id=chosen.resources_id)

    assert rollout.resources_id == chosen.resources_id


def test_a_model_behind_the_proxy_has_a_url_per_attempt() -> None:
    """The base URL of an attempt carries its ids, so that the proxy knows whose call it records."""
    model = ProxyLLM(endpoint="http://localhost:4750/v1", model="tiny")

    assert model.get_base_url("ro-1", "at-1") == "http://localhost:4750/rollout/ro-1/attempt/at-1/v1"


def test_a_prompt_template_is_filled_in() -> None:
    """A template of engine f-string is filled in by name, and a missing value is an error that lists those given."""
    template = PromptTemplate(template="Solve: {task}", engine="f-string")

    assert template.format(task="2 + 2") == "Solve: 2 + 2"
    with pytest.raises(InvalidRequest, match="question"):
        template.format(question="2 + 2")
