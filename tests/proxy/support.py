"""What the proxy's tests share: a small store with faults on demand, the proxy on a real socket, and its clients."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from yarl import URL

from agl_proxy.app import ProxyApp, ProxyOptions
from agl_proxy.serving import Server, listen
from agl_streams import errors, semconv
from agl_streams.models import Span
from tests.support.engine_standin import EngineStandin
from tests.support.waiting import until

ROLLOUT = "ro-1"
ATTEMPT = "at-1"
CHAT = f"/rollout/{ROLLOUT}/attempt/{ATTEMPT}/v1/chat/completions"
REQUEST: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi there"}]}
STREAM: dict[str, Any] = {**REQUEST, "stream": True}


@dataclass
class MemoryStore:
    """A store of one attempt, in memory, that can be slow, away or full.

    Attributes:
        admit_error, add_error: raised instead of serving.
        refuse_tokens: raised for a span that holds tokens.
        gate: a span is only stored once it is set.
    """

    spans: list[Span] = field(default_factory=list[Span])
    admitted: int = 0
    adding: int = 0
    admit_error: errors.AglError | None = None
    add_error: errors.AglError | None = None
    refuse_tokens: errors.AglError | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def admit_call(self, rollout_id: str, attempt_id: str) -> int:
        """Count up from 1; anything but the one attempt is unknown."""
        if self.admit_error is not None:
            raise self.admit_error
        if (rollout_id, attempt_id) != (ROLLOUT, ATTEMPT):
            raise errors.NotFound(f"no attempt {attempt_id!r} of rollout {rollout_id!r}")
        self.admitted += 1
        return self.admitted

    async def add_span(self, span: Span) -> Span | None:
        """Keep a span once the gate is open."""
        self.adding += 1
        await self.gate.wait()
        if self.add_error is not None:
            raise self.add_error
        if self.refuse_tokens is not None and semconv.CALL_PROMPT_TOKEN_IDS in span.attributes:
            raise self.refuse_tokens
        self.spans.append(span)
        return span

    def only_call(self) -> dict[str, Any]:
        """The attributes of the one span."""
        (span,) = self.spans
        return dict(span.attributes)


@dataclass
class Proxy:
    """A proxy that is being served, its engine and store, and a client."""

    url: str
    app: ProxyApp
    engine: EngineStandin
    store: MemoryStore
    client: aiohttp.ClientSession

    async def post(self, body: dict[str, Any] | bytes, path: str = CHAT, **headers: str) -> Reply:
        """POST, and the whole answer."""
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        sent = {"content-type": "application/json", **headers}
        async with self.client.post(URL(self.url + path, encoded=True), data=data, headers=sent) as response:
            return await _whole(response)

    async def get(self, path: str) -> Reply:
        """GET, and the whole answer."""
        async with self.client.get(self.url + path) as response:
            return await _whole(response)

    async def stored(self) -> dict[str, Any]:
        """The attributes of the one span, once it is there."""
        await until(lambda: self.store.spans, what="the span of the call")
        return self.store.only_call()

    async def reason(self) -> str | None:
        """Why the one call is incomplete, once its span is there; None when it is complete."""
        call = await self.stored()
        assert call[semconv.CALL_COMPLETE] is (semconv.CALL_INCOMPLETE_REASON not in call)
        return call.get(semconv.CALL_INCOMPLETE_REASON)


@dataclass(frozen=True)
class Reply:
    """A whole answer; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object of the answer, or of the last event of a stream."""
        last = self.body.strip().split(b"\n\n")[-1]
        return json.loads(last.removeprefix(b"data: "))["error"]


async def _whole(response: aiohttp.ClientResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status, headers, await response.read())


@asynccontextmanager
async def serving(app: ProxyApp) -> AsyncGenerator[str]:
    """An open proxy on a real socket of this machine; its URL."""
    listener = listen("127.0.0.1", 0)
    server = Server(app)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started, what="the server")
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    await until(lambda: app.capture.in_flight == 0, what="no call in flight")
    server.should_exit = True
    await task


@asynccontextmanager
async def served(engine: EngineStandin, store: MemoryStore | None = None, **options: Any) -> AsyncGenerator[Proxy]:
    """The proxy in front of an engine, with a store in memory, on a real socket."""
    store = store or MemoryStore()
    upstream = options.pop("upstream", engine.url)
    async with (
        ProxyApp(store, replace(ProxyOptions(upstream=upstream), **options)) as app,
        serving(app) as url,
        aiohttp.ClientSession() as client,
    ):
        yield Proxy(url, app, engine, store, client)
