"""What the tests of the policy server share: the server on a real socket, its client, and policies that obey."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web

from agl_streams.demo.chat_request import MODEL
from agl_streams.demo.policy import Floats, Policy, Token, weights_shape
from agl_streams.demo.policy_server import HOST, make_app
from agl_streams.demo.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
QUESTION = "How many shells does she have in total?"
REQUEST: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}]}
RECORDING: dict[str, Any] = {"return_token_ids": True, "logprobs": True}
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
STRONG = 1000.0  # a weight that leaves the other tools no chance


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream without its terminator, which must be there."""
        *events, done, rest = self.body.split(b"\n\n")
        assert (done, rest) == (b"data: [DONE]", b"")
        return [json.loads(event.removeprefix(b"data: ")) for event in events]


@dataclass(frozen=True)
class Choice:
    """What was sampled in one choice, read from either form of an answer."""

    text: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    stop_reason: str | None


@dataclass
class Served:
    """A policy server that runs, and a client of it."""

    url: str
    session: aiohttp.ClientSession
    runner: web.AppRunner

    async def post(self, body: dict[str, Any] | bytes, path: str = CHAT, **headers: str) -> Reply:
        """POST, and the whole answer."""
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        sent = {"content-type": "application/json", **headers}
        async with self.session.post(self.url + path, data=data, headers=sent) as answer:
            return Reply(answer.status, answer.headers.get("content-type", ""), await answer.read())

    async def get(self, path: str) -> Reply:
        """GET, and the whole answer."""
        async with self.session.get(self.url + path) as answer:
            return Reply(answer.status, answer.headers.get("content-type", ""), await answer.read())

    async def ask(self, **options: Any) -> list[Choice]:
        """The choices of a recorded call."""
        reply = await self.post({**REQUEST, **RECORDING, **options})
        assert reply.status == 200, reply.body
        return choices_of_stream(reply.events) if options.get("stream") else choices_of_whole(reply.json)


@asynccontextmanager
async def served(policy: Policy) -> AsyncGenerator[Served]:
    """A server that answers with ``policy``, on a free port."""
    runner = web.AppRunner(make_app(policy), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        async with aiohttp.ClientSession() as session:
            yield Served(f"http://{HOST}:{runner.addresses[0][1]}", session, runner)
    finally:
        await runner.cleanup()


def untrained(seed: int = 3) -> Policy:
    """A policy that guesses."""
    return Policy.initial(Tokenizer.load(), seed)


def always(tool: str, version: int = 1) -> Policy:
    """A policy that says ``tool`` to every question that has a word it knows."""
    tokenizer = Tokenizer.load()
    weights = np.zeros(weights_shape(tokenizer))
    weights[:, tokenizer.piece_id(tool)] = STRONG
    return Policy(tokenizer, weights, version)


class Scripted(Policy):
    """A policy that says given tokens, and the end when they are used up; the weights do not matter."""

    def __init__(self, script: Sequence[int]) -> None:
        tokenizer = Tokenizer.load()
        super().__init__(tokenizer, np.zeros(weights_shape(tokenizer)), 1)
        self.script = [*script, tokenizer.end_id]

    def sample(self, prompt_ids: Sequence[int], rng: np.random.Generator, temperature: float = 1.0) -> Iterator[Token]:
        """The tokens of the script."""
        for token_id in self.script:
            yield Token(token_id, self._likely(token_id))

    def _likely(self, token_id: int) -> Floats:
        logprobs = np.full(self.tokenizer.size, -20.0)
        logprobs[token_id] = -0.001
        return logprobs


def choices_of_whole(answer: dict[str, Any]) -> list[Choice]:
    """The choices of an answer in one piece."""
    return [
        Choice(
            choice["message"]["content"],
            choice["token_ids"],
            [entry["logprob"] for entry in choice["logprobs"]["content"]],
            choice["finish_reason"],
            choice["stop_reason"],
        )
        for choice in answer["choices"]
    ]


def choices_of_stream(events: list[Any]) -> list[Choice]:
    """The choices of a stream."""
    pieces: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        for choice in event["choices"]:
            pieces.setdefault(choice["index"], []).append(choice)
    found: list[Choice] = []
    for _, (_role, *rest) in sorted(pieces.items()):
        text = "".join(piece["delta"].get("content", "") for piece in rest)
        ids = [token for piece in rest for token in piece["token_ids"]]
        logprobs = [entry["logprob"] for piece in rest for entry in piece["logprobs"]["content"]]
        found.append(Choice(text, ids, logprobs, rest[-1]["finish_reason"], rest[-1]["stop_reason"]))
    return found
