"""Calling a server as a stranger would: bytes out, status, headers and bytes in."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
        pairs: list[tuple[str, Any]] = []
        for name, value in query.items():
            pairs += [(name, one) for one in (cast("list[Any]", value) if isinstance(value, list) else [value])]
        return await self.send("GET", path, params=pairs, headers=headers)

    async def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Reply:
        """POST a JSON body, or none when it is None."""
        if body is None:
            return await self.send("POST", path, headers=headers)
        return await self.raw(path, json.dumps(body).encode(), headers=headers)

    async def raw(
        self,
        path: str,
        body: bytes,
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
