"""A stand-in for the inference server: speaks vLLM's wire (as recorded) over a real socket, and fails on demand.

It samples nothing: each call gets the same tokens. A test queues a behaviour for the next call; without one the call
is answered properly. Behaviours are coroutine functions of an `Exchange`, so a test can write its own.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PROMPT_IDS = [1, 87, 505, 201]
FINGERPRINT = "vllm-0.32.0-standin"


@dataclass(frozen=True)
class Token:
    """One token that is "sampled"."""

    id: int
    text: str
    logprob: float


TOKENS = (
    Token(1397, " Grüße", -0.5),
    Token(905, " 世", -1.25),
    Token(1747, "界", -0.0625),
    Token(2, "", -2.0),
)


@dataclass
class Exchange:
    """One call as a behaviour sees it.

    Attributes:
        body: the request's JSON.
        tokens: what each choice answers.
    """

    request: web.Request
    body: dict[str, Any]
    tokens: Sequence[Token]
    response: web.StreamResponse | None = None

    async def begin(self, content_type: str = "text/event-stream; charset=utf-8", status: int = 200) -> None:
        """Send the head of a streamed answer."""
        self.response = web.StreamResponse(status=status, headers={"content-type": content_type})
        await self.response.prepare(self.request)

    async def write(self, data: bytes) -> None:
        """Send a piece of a streamed answer."""
        assert self.response is not None, "call begin() first"
        await self.response.write(data)

    def drop(self) -> None:
        """Break the connection."""
        assert self.request.transport is not None, "the client is gone already"
        self.request.transport.abort()

    async def answer(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send an answer in one piece."""
        self.response = web.Response(status=status, body=body, headers={"content-type": content_type})

    async def hang(self) -> None:
        """Do nothing until the client goes away."""
        await asyncio.get_running_loop().create_future()

    def frames(self) -> list[bytes]:
        """The events of a proper stream."""
        return frames(self.body, self.tokens)

    async def speak(self) -> None:
        """Answer properly, streamed or not as the request says."""
        if not self.body.get("stream"):
            await self.answer(200, whole_answer(self.body, self.tokens))
            return
        await self.begin()
        for frame in self.frames():
            await self.write(frame)


Behaviour = Callable[[Exchange], Awaitable[None]]


@dataclass
class EngineStandin:
    """The running stand-in.

    Attributes:
        url: its base URL.
        requests: bodies of the chat calls that reached it.
        running: chat calls being answered.
        cancelled: chat calls whose client went away before the end.
        peers: the connections that they came over.
    """

    url: str = ""
    tokens: Sequence[Token] = TOKENS
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    running: int = 0
    cancelled: int = 0
    peers: set[Any] = field(default_factory=set[Any])
    _next: deque[Behaviour] = field(default_factory=deque[Behaviour])

    def behave(self, *behaviours: Behaviour) -> None:
        """Queue behaviours, one for each of the next calls."""
        self._next.extend(behaviours)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer one chat call."""
        body: dict[str, Any] = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return await self._serve(request, body)

    async def hang(self, request: web.Request) -> web.StreamResponse:
        """Never answer."""
        self.behave(hang)
        return await self._serve(request, {})

    async def _serve(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.transport is not None:
            self.peers.add(request.transport.get_extra_info("peername"))
        exchange = Exchange(request, body, self.tokens)
        behaviour = self._next.popleft() if self._next else speak
        self.running += 1
        try:
            await behaviour(exchange)
        except (asyncio.CancelledError, ConnectionResetError):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return exchange.response or web.Response(status=500, text="the behaviour sent nothing")


@asynccontextmanager
async def engine_standin() -> AsyncGenerator[EngineStandin]:
    """A stand-in on a free port of this machine, in the current event loop."""
    standin = EngineStandin()
    app = web.Application(client_max_size=2**27)
    app.router.add_post("/v1/chat/completions", standin.chat)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/v1/hang", standin.hang)
    app.router.add_route("*", "/{path:.*}", _echo)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    standin.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield standin
    finally:
        await runner.cleanup()


async def speak(exchange: Exchange) -> None:
    """Behaviour: a proper answer."""
    await exchange.speak()


async def hang(exchange: Exchange) -> None:
    """Behaviour: take the request and never answer."""
    await exchange.hang()


async def drop(exchange: Exchange) -> None:
    """Behaviour: break the connection before a byte of the answer."""
    exchange.drop()
    await exchange.hang()


def refuse(status: int, body: bytes) -> Behaviour:
    """Behaviour: an error in vLLM's form, or any other body."""

    async def behaviour(exchange: Exchange) -> None:
        await exchange.answer(status, body)

    return behaviour


def say(*pieces: bytes) -> Behaviour:
    """Behaviour: a stream of just these pieces, ended cleanly."""

    async def behaviour(exchange: Exchange) -> None:
        await exchange.begin()
        for piece in pieces:
            await exchange.write(piece)

    return behaviour


def stall_after(events: int) -> Behaviour:
    """Behaviour: so many events of a proper stream, then silence on an open connection, as vLLM on SIGTERM."""

    async def behaviour(exchange: Exchange) -> None:
        await _begin_with(exchange, events)
        await exchange.hang()

    return behaviour


def drop_after(events: int, *, half_frame: bool = False) -> Behaviour:
    """Behaviour: so many events, perhaps half of the next one, then a broken connection."""

    async def behaviour(exchange: Exchange) -> None:
        await _begin_with(exchange, events)
        if half_frame:
            frame = exchange.frames()[events]
            await exchange.write(frame[: len(frame) // 2])
        exchange.drop()
        await exchange.hang()

    return behaviour


def trickle(passed: Callable[[int], Awaitable[None]]) -> Behaviour:
    """Behaviour: a proper stream; before event n + 1 is made, ``passed(n)`` is awaited."""

    async def behaviour(exchange: Exchange) -> None:
        await exchange.begin()
        for number, frame in enumerate(exchange.frames()):
            await exchange.write(frame)
            await passed(number)

    return behaviour


async def without_ids(exchange: Exchange) -> None:
    """Behaviour: a proper answer of a server that knows nothing of token ids."""
    for field_name in ("return_token_ids", "logprobs"):
        exchange.body.pop(field_name, None)
    await exchange.speak()


def whole_answer(body: dict[str, Any], tokens: Sequence[Token]) -> bytes:
    """The answer to a chat request in one piece."""
    choices = [_whole_choice(body, tokens, index) for index in range(body.get("n") or 1)]
    answer = {
        "id": "chatcmpl-standin",
        "object": "chat.completion",
        "created": 1795971031,
        "model": body.get("model"),
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": _usage(body, tokens),
        "prompt_logprobs": None,
        "prompt_token_ids": PROMPT_IDS if body.get("return_token_ids") else None,
    }
    return _compact(answer)


def frames(body: dict[str, Any], tokens: Sequence[Token]) -> list[bytes]:
    """The events of the answer to a streamed chat request, the terminator last."""
    choices = range(body.get("n") or 1)
    prompt = PROMPT_IDS if body.get("return_token_ids") else None
    events: list[dict[str, Any]] = []
    for index in choices:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        events.append({**_chunk(body, [choice]), "prompt_token_ids": prompt, "prompt_text": None})
    for position, token in enumerate(tokens):
        last = position == len(tokens) - 1
        events += [_chunk(body, [_streamed_choice(body, token, index, last=last)]) for index in choices]
    options: dict[str, Any] = body.get("stream_options", {})
    if options.get("include_usage"):
        usage = {"usage": _usage(body, tokens), "system_fingerprint": FINGERPRINT}
        events.append({**_chunk(body, []), **usage})
    else:
        events[-1]["system_fingerprint"] = FINGERPRINT
    return [b"data: " + _compact(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]


async def _begin_with(exchange: Exchange, events: int) -> None:
    await exchange.begin()
    for frame in exchange.frames()[:events]:
        await exchange.write(frame)


def _whole_choice(body: dict[str, Any], tokens: Sequence[Token], index: int) -> dict[str, Any]:
    text = "".join(token.text for token in tokens)
    return {
        "index": index,
        "message": {"role": "assistant", "content": text, "refusal": None, "reasoning": None},
        "logprobs": _logprobs(body, tokens),
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": [token.id for token in tokens] if body.get("return_token_ids") else None,
    }


def _streamed_choice(body: dict[str, Any], token: Token, index: int, *, last: bool) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        "delta": {"content": token.text} if token.text else {},
        "logprobs": _logprobs(body, [token]),
        "finish_reason": "stop" if last else None,
        "token_ids": [token.id] if body.get("return_token_ids") else None,
    }
    return {**choice, "stop_reason": None} if last else choice


def _logprobs(body: dict[str, Any], tokens: Sequence[Token]) -> dict[str, Any] | None:
    if not body.get("logprobs"):
        return None
    return {
        "content": [
            {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode()), "top_logprobs": []}
            for token in tokens
        ]
    }


def _chunk(body: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": "chatcmpl-standin", "object": "chat.completion.chunk", "created": 1795971033}
    return {**head, "model": body.get("model"), "choices": choices}


def _usage(body: dict[str, Any], tokens: Sequence[Token]) -> dict[str, int]:
    completion = len(tokens) * (body.get("n") or 1)
    prompt = len(PROMPT_IDS)
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


async def _models(_request: web.Request) -> web.Response:
    models = {"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "vllm"}]}
    return web.Response(body=_compact(models), headers={"content-type": "application/json"})


async def _echo(request: web.Request) -> web.Response:
    """Any other path answers what it was asked, so that a test sees what was forwarded."""
    seen = {"method": request.method, "path": request.raw_path, "body": (await request.read()).decode()}
    return web.Response(body=_compact(seen), headers={"content-type": "application/json", "x-seen": "1"})


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
