"""The log over HTTP, as it grows: events one by one, across cuts and restarts, each once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from agl_streams import clock
from agl_streams.client.base import ClientBase
from agl_streams.errors import StoreUnavailable
from agl_streams.logger import get_logger
from agl_streams.values import read_json

FIRST_PAUSE_S: Final = 0.1
MOST_PAUSE_S: Final = 5.0

_log = get_logger()


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event of the log; see ``agl_streams.events`` for the types and their fields.

    Attributes:
        cursor: `StoreClient.tail` goes on behind this event when it is given as ``after``.
        n: dense number of the event in its shard.
        time: Unix seconds.
    """

    cursor: str
    shard: int
    id: str
    type: str
    n: int
    time: float
    fields: dict[str, str]


class TailCalls(ClientBase):
    """What is happening."""

    async def tail(
        self,
        after: str | None = None,
        *,
        types: Sequence[str] | None = None,
        rollout_ids: Sequence[str] | None = None,
    ) -> AsyncGenerator[LogEvent, None]:
        """The events of the log, for as long as the caller reads.

        A cut connection, a stopped server and a reader that fell behind are followed by another request from where this
        one was.

        Args:
            after: the cursor of an event; ``0`` for the beginning of the log; None for now on.
            types, rollout_ids: only such events.

        Raises:
            InvalidRequest: a cursor that this log cannot have.
        """
        wanted = [*(("type", one) for one in types or ()), *(("rollout_id", one) for one in rollout_ids or ())]
        cursor, pause_s = after, FIRST_PAUSE_S
        while True:
            query = wanted if cursor is None else [*wanted, ("after", cursor)]
            try:
                async with aclosing(self._messages(query)) as messages:
                    async for cursor, data in messages:
                        pause_s = FIRST_PAUSE_S
                        if data is not None:
                            named = {name: data[name] for name in ("shard", "id", "type", "n", "time", "fields")}
                            yield LogEvent(cursor=cursor, **named)
            except StoreUnavailable as error:
                _log.warning("tail_interrupted", url=self.url, error=str(error), cursor=cursor)
                await clock.sleep_s(pause_s)
                pause_s = min(pause_s * 2, MOST_PAUSE_S)

    async def _messages(self, query: list[tuple[str, str]]) -> AsyncGenerator[tuple[str, Any], None]:
        """Cursors with what was said there: an event of the log, or None."""
        response = await self._transport.open("events", query, {"Accept": "text/event-stream"})
        async with response:
            try:
                while (block := await response.content.readuntil(b"\n\n")).endswith(b"\n\n"):
                    lines = [line.partition(": ") for line in block.decode().splitlines()]
                    fields = {name: value for name, _, value in lines if name}
                    said = "data" in fields and "event" not in fields
                    yield fields["id"], read_json(fields["data"]) if said else None
            except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as cut:
                raise StoreUnavailable(f"the stream of {self.url} was cut: {cut}") from cut
