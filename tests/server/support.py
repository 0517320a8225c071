"""Calling a server as a stranger would: bytes out, status, headers and bytes in."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import aiohttp

from agl_streams.models import AttemptedRollout, Span

AGL = "/v1/agl"


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        headers: names in lower case.
    """

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        """The body as JSON, which must be of its media type, exactly."""
        assert self.headers["content-type"] == "application/json", self
        return json.loads(self.body, parse_constant=_no_constant)

    @property
    def detail(self) -> Any:
        """What an error says."""
        return self.json["detail"]


class Api:
    """A session with one server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> Reply:
        """GET under ``/v1/agl``; a path that begins with a slash is taken as it is."""
        return await self.send("GET", path, params=pairs(query), headers=headers)

    async def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Reply:
        """POST a JSON body, or none when it is None."""
        if body is None:
            return await self.send("POST", path, headers=headers)
        return await self.raw(path, json.dumps(body).encode(), headers=headers)

    async def raw(
        self,
        path: str,
        body: bytes | io.BytesIO,
        content_type: str = "application/json",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """POST any bytes."""
        return await self.send("POST", path, data=body, headers={"content-type": content_type, **(headers or {})})

    async def send(self, method: str, path: str, **options: Any) -> Reply:
        """Any request."""
        url = path if path.startswith("/") else f"{AGL}/{path}"
        async with self.session.request(method, url, allow_redirects=False, **options) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, await response.read(), headers)


def pairs(query: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Query parameters; a list gives its name several times."""
    found: list[tuple[str, Any]] = []
    for name, value in query.items():
        found += [(name, one) for one in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    return found


@dataclass(frozen=True)
class Sent:
    """One server-sent event.

    Attributes:
        name: None for one of the log.
        data: None for a sign of life.
    """

    id: str
    name: str | None
    data: Any

    @property
    def rollout_id(self) -> str:
        """Of an event of the log."""
        return self.data["fields"]["rollout"]


async def sent_events(response: aiohttp.ClientResponse) -> AsyncGenerator[Sent]:
    """The server-sent events of an answer, signs of life included, as they come."""
    assert response.status == 200
    assert response.headers["content-type"] == "text/event-stream"
    while block := await response.content.readuntil(b"\n\n"):
        lines = [line.partition(": ") for line in block.decode().splitlines()]
        fields = {name: value for name, _, value in lines if name}
        yield Sent(fields["id"], fields.get("event"), json.loads(fields["data"]) if "data" in fields else None)


async def next_events(stream: AsyncGenerator[Sent], count: int) -> list[Sent]:
    """The next events that say something."""
    found: list[Sent] = []
    async for sent in stream:
        if sent.data is not None:
            found.append(sent)
        if len(found) == count:
            break
    return found


def span_json(attempted: AttemptedRollout, **changes: Any) -> dict[str, Any]:
    """A whole span of an attempt, as a client sends it."""
    span = Span.from_attributes(
        name="step",
        attributes={"n": [1.5, 2.0], "text": "é"},
        rollout_id=attempted.rollout_id,
        attempt_id=attempted.attempt.attempt_id,
        sequence_id=1,
        start_time=1.5,
    )
    return json.loads(span.to_json()) | changes


def _no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")
