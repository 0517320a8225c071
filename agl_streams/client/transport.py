"""One request to the server, sent until it is answered: time limits, repeats, and the server's errors as ours.

A request whose answer was lost may have been carried out. So every repeat is made harmless: what the caller names (a
rollout id, a span id) is found again by the server, and the rest carries a key (``Idempotency-Key``) by which the
server gives the first answer. What cannot be made so is repeated only when it was certainly not carried out.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakKeyDictionary

import aiohttp
from yarl import URL

from agl_streams import clock, errors
from agl_streams.config import mask_url
from agl_streams.logger import get_logger
from agl_streams.values import read_json

CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
"""For one try, beyond what the server was asked to wait."""
REPEAT_FOR_S: Final = 20.0
"""How long a request is tried after its first failure: a server process that was killed is back within some seconds."""
FIRST_PAUSE_S: Final = 0.05
MOST_PAUSE_S: Final = 2.0
CONNECTIONS: Final = 256
"""To one server, per event loop: a runner's waiting calls hold one each."""
LARGE_BYTES: Final = 1024 * 1024
"""aiohttp sends a larger body in pieces only when it is given as a file."""
NOT_NOW: Final = frozenset({408, 502, 503, 504})
"""What a server, or a load balancer before it, says when it may be different a moment later."""

_HEADERS: Final = {"Accept": "application/json;nan=keep", "Content-Type": "application/json"}
_CUT: Final = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError, OSError)
_NOT_SENT: Final = (aiohttp.ClientConnectorError,)

_log = get_logger()


class Transport:
    """The connections of a client. It may be used from any event loop: each has a session of its own."""

    def __init__(self, url: str) -> None:
        """
        Args:
            url: base URL of the server, as in ``http://localhost:4747``.
        """
        self.url = url.rstrip("/")
        self._sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()
        self._pid = os.getpid()
        self._is_away = False

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer of a GET."""
        return await self.send("GET", path, query=query)

    async def post(
        self,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        waits_s: float = 0.0,
        repeatable: bool = True,
    ) -> Any:
        """The JSON answer of a POST.

        Args:
            body: JSON.
            key: of this request, the same on its repeats.
            waits_s: how long the server is asked to wait before it answers.
            repeatable: whether a second time does no harm.
        """
        return await self.send("POST", path, body, key=key, waits_s=waits_s, repeatable=repeatable)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        waits_s: float = 0.0,
        repeatable: bool = True,
    ) -> Any:
        """The JSON answer of a request, which is sent again while the server is away, for `REPEAT_FOR_S`.

        Raises:
            NotFound, Conflict, InvalidRequest and their kinds: what the server says of the request.
            StoreUnavailable: the server stayed away, or answered that it cannot serve. What became of a request that
                is not repeatable is unknown.
            ServerRefused: the answer is none of a server of ours.
            CommandFailed: a fault of the server, with the id under which its log tells more.
        """
        url = URL(f"{self.url}/v1/agl/{path}", encoded=True)
        url = url.with_query(dict(query)) if query else url
        headers = {} if key is None else {"Idempotency-Key": key}
        deadline, pause_s = None, FIRST_PAUSE_S
        while True:
            try:
                answer = await self._once(method, url, body, headers, waits_s)
            except errors.StoreUnavailable as error:
                self._note_away(error)
                deadline = deadline or clock.monotonic_s() + REPEAT_FOR_S  # a request may have waited long before
                safe = repeatable or isinstance(error.__cause__, _NOT_SENT)
                if not safe or clock.monotonic_s() + pause_s > deadline:
                    raise
                _log.debug("request_repeated", method=method, path=path, error=str(error), in_s=pause_s)
            else:
                self._note_back()
                return answer
            await clock.sleep_s(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, MOST_PAUSE_S)
            headers["Idempotency-Repeat"] = "1"

    async def open(self, path: str, query: list[tuple[str, str]], headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """The head of an answer that goes on without end. One try.

        Raises:
            As `send`.
        """
        url = URL(f"{self.url}/v1/agl/{path}", encoded=True).with_query(query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S)
        try:
            response = await self._session().get(url, headers=headers, timeout=timeout)
        except _CUT as cut:
            raise self._away(cut) from cut
        if response.status != 200:  # noqa: PLR2004  the one status of success here
            async with response:
                raise _refusal(response, await response.read())
        return response

    async def close(self) -> None:
        """Close the connections of the running event loop. Each loop that has used the client closes its own."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def _once(self, method: str, url: URL, body: bytes | None, headers: Mapping[str, str], waits_s: float) -> Any:
        data = io.BytesIO(body) if body is not None and len(body) > LARGE_BYTES else body
        timeout = aiohttp.ClientTimeout(total=ANSWER_S + waits_s, sock_connect=CONNECT_S)
        try:
            async with self._session().request(
                method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                content = await response.read()
        except _CUT as cut:
            raise self._away(cut) from cut
        if response.status in NOT_NOW:
            raise _not_now(response, content)
        if response.status >= 300:  # noqa: PLR2004  where success ends
            raise _refusal(response, content)
        if response.content_type != "application/json":
            raise errors.ServerRefused(
                f"{mask_url(self.url)} answered {method} {url.path} with {response.content_type!r} instead of JSON: "
                "is it the address of an agl-streams server?"
            )
        return read_json(content)

    def _session(self) -> aiohttp.ClientSession:
        if self._pid != os.getpid():  # a fork shares its parent's sockets, which are not its own to use or to close
            self._sessions, self._pid = WeakKeyDictionary(), os.getpid()
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            session = self._sessions[loop] = aiohttp.ClientSession(connector=connector, headers=_HEADERS)
        return session

    def _away(self, cut: BaseException) -> errors.StoreUnavailable:
        # What aiohttp wraps around the system's error is of no use to a reader.
        reason = str(cut.os_error if isinstance(cut, aiohttp.ClientConnectorError) else cut) or type(cut).__name__
        return errors.StoreUnavailable(f"cannot reach {mask_url(self.url)}: {reason}. Is the server running?")

    def _note_away(self, error: errors.StoreUnavailable) -> None:
        """Say at once, and once for all requests that wait for the server, what is waited for."""
        if not self._is_away:
            self._is_away = True
            _log.warning("server_away", url=mask_url(self.url), fault=str(error), retried_for_s=REPEAT_FOR_S)

    def _note_back(self) -> None:
        if self._is_away:
            self._is_away = False
            _log.info("server_back", url=mask_url(self.url))


def segment(part: str) -> str:
    """An id as a part of a path."""
    return quote(part, safe="")


def _not_now(response: aiohttp.ClientResponse, content: bytes) -> errors.StoreUnavailable:
    kind = _kind(response)
    kind = kind if kind is not None and issubclass(kind, errors.StoreUnavailable) else errors.StoreUnavailable
    return kind(_detail(response, content))


def _refusal(response: aiohttp.ClientResponse, content: bytes) -> errors.AglError:
    """Our error for an answer that is none of success."""
    detail = _detail(response, content)
    kind = _kind(response) or _KINDS.get(response.status)
    if kind is not None:
        return kind(detail)
    if response.status >= 500:  # noqa: PLR2004  where the server's own faults begin
        return errors.CommandFailed(str(response.status), detail)
    return errors.ServerRefused(f"{response.method} {response.url} was answered {response.status}: {detail}")


_KINDS: Final[Mapping[int, type[errors.AglError]]] = {
    400: errors.InvalidRequest,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.TooLarge,
    422: errors.InvalidRequest,
}


def _kind(response: aiohttp.ClientResponse) -> type[errors.AglError] | None:
    """The class that the server names, if it is one of those that a server may name."""
    named = getattr(errors, response.headers.get("X-Error", ""), None)
    if isinstance(named, type) and issubclass(named, errors.AglError) and named is not errors.CommandFailed:
        return named
    return None


def _detail(response: aiohttp.ClientResponse, content: bytes) -> str:
    try:
        detail = read_json(content)["detail"]
    except (errors.InvalidRequest, KeyError, TypeError):
        return f"status {response.status} {response.reason}"
    return detail if isinstance(detail, str) else _first_finding(detail)


def _first_finding(findings: Any) -> str:
    """A validation's findings in one line."""
    first = findings[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{place}: {first['msg']}{more}"
