"""A server that says what a test tells it to say, for the faults that a real one cannot be made to have."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


class Cut:
    """In place of an answer: the connection is broken."""


@dataclass
class Standin:
    """The running stand-in.

    Attributes:
        requests, bodies: what came in.
    """

    cut = Cut()
    url: str = ""
    requests: list[web.Request] = field(default_factory=list[web.Request])
    bodies: list[bytes] = field(default_factory=list[bytes])
    _answers: list[web.Response | Cut] = field(default_factory=list["web.Response | Cut"])

    def answer(self, *answers: web.Response | Cut) -> None:
        """Queue answers, one for each of the next requests."""
        self._answers += answers

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        self.requests.append(request)
        self.bodies.append(await request.read())
        found = self._answers.pop(0)
        if isinstance(found, Cut):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return found


@asynccontextmanager
async def standin_server() -> AsyncGenerator[Standin]:
    """A stand-in on a free port."""
    standin = Standin()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", standin.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    standin.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield standin
    finally:
        await runner.cleanup()
