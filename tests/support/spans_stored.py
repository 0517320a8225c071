"""A sink of spans for tests of the agent's side: it remembers, waits or fails as told."""

from __future__ import annotations

import asyncio

from agl_streams.models import Span


class Stored:
    """A sink: keeps spans in the order they arrive, can be made to wait or to fail."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.calls = 0
        self.open = asyncio.Event()
        self.open.set()
        self.failures: list[Exception] = []

    async def __call__(self, spans: list[Span]) -> None:
        self.calls += 1
        await self.open.wait()
        if self.failures:
            raise self.failures.pop()
        self.spans += spans

    @property
    def names(self) -> list[str]:
        """The names of the spans, in order."""
        return [span.name for span in self.spans]
