"""What the policy server samples, and how its weights are replaced."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import numpy as np
import pytest

from agl_streams.demo import policy_server
from agl_streams.demo.policy import Policy, weights_shape
from agl_streams.demo.policy_server import push_policy
from agl_streams.errors import ConfigError, Conflict, InvalidRequest
from tests.demo.serving import (
    QUESTION,
    RECORDING,
    REQUEST,
    STREAM,
    Served,
    always,
    choices_of_stream,
    served,
    untrained,
)
from tests.support.processes import ProcessGroup

POLICY = untrained()
PROMPT = POLICY.tokenizer.encode_chat([("user", QUESTION)])


@pytest.fixture
async def server() -> AsyncGenerator[Served]:
    """A server with an untrained policy."""
    async with served(POLICY) as server:
        yield server


def recomputed(policy: Policy, token_ids: list[int]) -> list[float]:
    """The log-probabilities of an answer's tokens from ids alone."""
    return [float(policy.logprobs([*PROMPT, *token_ids[:place]])[token_id]) for place, token_id in enumerate(token_ids)]


async def test_both_forms_of_an_answer_have_the_same_samples(server: Served) -> None:
    """With the same seed a whole answer and a stream have equal ids, log-probabilities, text and reasons."""
    for seed in range(20):
        assert await server.ask(seed=seed, n=2) == await server.ask(seed=seed, n=2, **STREAM)


async def test_log_probabilities_are_the_policys_own(server: Served) -> None:
    """Whatever the temperature, each log-probability is exactly the one that the policy gives at temperature 1."""
    for options in ({"seed": 1}, {"seed": 2, "temperature": 3.0}, {"temperature": 0.0}):
        (choice,) = await server.ask(**options)
        assert choice.logprobs == recomputed(POLICY, choice.token_ids)


async def test_a_seed_decides_the_samples(server: Served) -> None:
    """A seed always gives the same answers, its first choice whatever the number of choices, and others give others."""
    by_seed = {seed: await server.ask(seed=seed) for seed in range(-5, 30)}
    assert {seed: await server.ask(seed=seed) for seed in by_seed} == by_seed
    assert (await server.ask(seed=7, n=3))[:1] == by_seed[7]
    assert len({choice.text for (choice,) in by_seed.values()}) > 1


async def test_without_a_seed_calls_differ(server: Served) -> None:
    """Calls without a seed are sampled independently."""
    assert len({choice.text for choice in await server.ask(n=64)}) > 1


async def test_temperature_zero_takes_the_likeliest(server: Served) -> None:
    """At temperature 0 every seed gives the likeliest tool."""
    likeliest = int(POLICY.logprobs(PROMPT).argmax())
    answers = [await server.ask(seed=seed, temperature=0) for seed in range(10)]
    assert {choice.token_ids[0] for (choice,) in answers} == {likeliest}


async def test_the_token_limit_ends_an_answer(server: Served) -> None:
    """An answer that reaches its limit ends for that reason; either name of the limit will do."""
    for options in ({"max_tokens": 1}, {"max_completion_tokens": 1}, {"max_tokens": 9, "max_completion_tokens": 1}):
        (choice,) = await server.ask(seed=1, **options)
        assert (len(choice.token_ids), choice.finish_reason) == (1, "length")
    (choice,) = await server.ask(seed=1)
    assert (len(choice.token_ids), choice.finish_reason) == (2, "stop")


async def test_new_weights_answer_the_next_call(server: Served) -> None:
    """After a push the server answers with the new policy and its fingerprint, and says so."""
    await push_policy(server.session, server.url, always("divide", version=2))
    assert (await server.get("/policy/version")).json == {"version": 2, "fingerprint": "agl-policy-2"}
    answer = (await server.post({**REQUEST, "seed": 1})).json
    assert answer["choices"][0]["message"]["content"] == "divide"
    assert answer["system_fingerprint"] == "agl-policy-2"
    await push_policy(server.session, server.url, always("add", version=3))
    stream = (await server.post({**REQUEST, **RECORDING, **STREAM})).events
    assert choices_of_stream(stream)[0].text == "add"
    assert stream[-1]["system_fingerprint"] == "agl-policy-3"


async def test_every_answer_comes_of_one_version(server: Served) -> None:
    """Calls that run while weights are pushed each answer with the version that their fingerprint names."""
    versions = {version: untrained(version) for version in range(2, 12)}
    policies = {p.fingerprint: p for p in (Policy(p.tokenizer, p.weights, v) for v, p in versions.items())}
    policies[POLICY.fingerprint] = POLICY

    async def call(seed: int) -> None:
        events = (await server.post({**REQUEST, **RECORDING, **STREAM, "seed": seed, "n": 4})).events
        policy = policies[events[-1]["system_fingerprint"]]
        for choice in choices_of_stream(events):
            assert choice.logprobs == recomputed(policy, choice.token_ids)

    async def push_all() -> None:
        for policy in policies.values():
            if policy is not POLICY:
                await push_policy(server.session, server.url, policy)

    await asyncio.gather(push_all(), *(call(seed) for seed in range(60)))


async def test_a_push_can_be_repeated_and_not_taken_back(server: Served) -> None:
    """The same version may come again; an older one, or other weights under its number, are refused."""
    newest = always("add", version=5)
    for _ in range(2):
        await push_policy(server.session, server.url, newest)
    with pytest.raises(Conflict, match="version 4"):
        await push_policy(server.session, server.url, always("add", version=4))
    with pytest.raises(Conflict, match="version 5"):
        await push_policy(server.session, server.url, always("divide", version=5))
    assert (await server.get("/policy/version")).json["version"] == 5
    assert (await server.ask(seed=1))[0].text == "add"


@pytest.mark.parametrize(
    ("query", "body", "param"),
    [
        ("version=2&fingerprint=agl-policy-2", b"\0" * 8, "weights"),
        ("version=2&fingerprint=agl-policy-2", None, "weights"),
        ("version=two&fingerprint=agl-policy-2", b"", "version"),
        ("fingerprint=agl-policy-2", b"", "version"),
        ("version=2&fingerprint=agl-policy-3", b"", "fingerprint"),
    ],
    ids=["too short", "not finite", "no number", "no version", "another fingerprint"],
)
async def test_weights_that_do_not_fit_change_nothing(
    server: Served, query: str, body: bytes | None, param: str
) -> None:
    """Weights of another size, that are not finite or not what they are said to be are a 400 that names the fault."""
    rows, columns = weights_shape(POLICY.tokenizer)
    if body is None:
        body = np.full((rows, columns), np.nan).tobytes()
    elif not body:
        body = bytes(rows * columns * 8)
    reply = await server.post(body, f"/policy?{query}")
    assert (reply.status, reply.json["error"]["param"]) == (400, param)
    assert (await server.get("/policy/version")).json["version"] == 1


async def test_a_refused_push_is_an_error(server: Served) -> None:
    """Pushing to a server that does not take it raises, with the server's words."""
    with pytest.raises(InvalidRequest, match="404"):
        await push_policy(server.session, f"{server.url}/elsewhere", always("add", version=2))


async def _version_of(port: int) -> Any:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{policy_server.HOST}:{port}/policy/version") as answer,
    ):
        return await answer.json()


async def test_the_server_is_a_process(processes: ProcessGroup) -> None:
    """Started as a module it logs its port, serves the untrained policy, and ends cleanly on SIGTERM."""
    process = processes.module(
        "agl_streams.demo.policy_server", "--port", "0", "--seed", "3", env={"AGL_LOG_FORMAT": "json"}
    )
    process.printed("policy_server_listening")
    records = [json.loads(line) for line in process.output.splitlines()]
    (port,) = [record["port"] for record in records if record["event"] == "policy_server_listening"]
    assert await _version_of(port) == {"version": 1, "fingerprint": "agl-policy-1"}
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


async def test_a_port_that_is_taken_is_an_error(server: Served) -> None:
    """A server that cannot listen says on which address."""
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=str(port)):
        await policy_server.serve(POLICY, port, asyncio.Event())
