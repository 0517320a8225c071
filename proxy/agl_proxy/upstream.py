"""The inference server as an ASGI application: forwards a request with aiohttp and relays the answer as it arrives.

One connection pool per process. No bytes of an answer are changed, and none wait: what has arrived is passed on. All
waiting is bounded. Nothing is retried here.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from agl_proxy import checks
from agl_proxy.asgi import Headers, Receive, Scope, Send, read_body
from agl_proxy.attribution import raw_path_of
from agl_proxy.errors_openai import ErrorAnswer
from agl_proxy.fault import Fault
from agl_streams.errors import ConfigError

KEEP_ALIVE_S: Final = 4.0
"""Idle connections are dropped earlier than the server does it (uvicorn, so vLLM: 5 s), or a request could meet a
connection that is just being closed."""

# Of one hop only (RFC 9110, section 7.6.1), or made anew for the next one. Answers must come unpacked to be read.
_NOT_FORWARDED = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_RELAYED = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_WRITTEN_AT_ONCE = 2**20  # bytes; aiohttp writes a larger body piece by piece, and only from a file


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the inference server may take, in seconds.

    Attributes:
        connect: to accept a connection.
        first_byte: to begin its answer. An answer in one piece begins when all of it is sampled.
        idle: between two pieces of an answer. A vLLM that gets SIGTERM stops sending and leaves connections open.
        total: for the whole call.
    """

    connect: float = 10.0
    first_byte: float = 600.0
    idle: float = 120.0
    total: float = 3600.0


class Upstream:
    """Forwards calls to one inference server.

    Args:
        base_url: as in ``http://localhost:8000``; a path of it is put before the path of each call.
        max_request_bytes: limit of a request's body.
    """

    def __init__(self, base_url: str, timeouts: Timeouts, max_request_bytes: int) -> None:
        self._base = base_url.rstrip("/")
        self._timeouts = timeouts
        self._max_request_bytes = max_request_bytes
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the connection pool, in the event loop that will use it."""
        timeout = aiohttp.ClientTimeout(
            total=self._timeouts.total, sock_connect=self._timeouts.connect, sock_read=self._timeouts.first_byte
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),  # the callers' number is the limit
            cookie_jar=aiohttp.DummyCookieJar(),  # one agent's cookies are no business of another
            timeout=timeout,
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close the pool and with it every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Fault | None:
        """Forward one HTTP call; how it failed, if it did. When the head was not relayed yet, nothing was.

        Raises:
            TooLarge: the request's body is above its limit.
        """
        if self._session is None:
            raise ConfigError("the connection pool is not open; the server must run this application's lifespan")
        body = await read_body(scope, receive, self._max_request_bytes)
        headed = False
        try:
            async with self._session.request(
                scope["method"],
                self._url(scope),
                headers=_request_headers(scope["headers"]),
                data=io.BytesIO(body) if len(body) > _WRITTEN_AT_ONCE else body or None,
                allow_redirects=False,
            ) as response:
                headed = True
                try:
                    await self._relay(response, send)
                except BaseException:
                    response.close()  # at once, so that the server stops sampling for nobody
                    raise
        except (TimeoutError, aiohttp.ClientError) as error:
            return self._fault(error, headed=headed)
        return None

    async def _relay(self, response: aiohttp.ClientResponse, send: Send) -> None:
        connection = response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = self._timeouts.idle  # applies from the next bytes on
        await send({"type": "http.response.start", "status": response.status, "headers": _answer_headers(response)})
        content = response.content
        while piece := await content.readany():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _url(self, scope: Scope) -> URL:
        query: bytes = scope.get("query_string", b"")
        path = raw_path_of(scope) + (b"?" + query if query else b"")
        return URL(self._base + path.decode("latin-1"), encoded=True)

    def _fault(self, error: Exception, *, headed: bool) -> Fault:
        limits = self._timeouts
        match error:
            case aiohttp.ConnectionTimeoutError():
                reason, text = checks.UPSTREAM_UNREACHABLE, f"did not accept a connection within {limits.connect:g} s"
            case aiohttp.SocketTimeoutError() if headed:
                reason, text = (
                    checks.UPSTREAM_STALLED,
                    f"sent nothing for {limits.idle:g} s in the middle of its answer",
                )
            case aiohttp.SocketTimeoutError():
                reason, text = checks.UPSTREAM_SILENT, f"did not begin to answer within {limits.first_byte:g} s"
            case TimeoutError():
                reason, text = checks.UPSTREAM_TOO_SLOW, f"took more than {limits.total:g} s for the call"
            case aiohttp.ClientConnectorError():
                reason, text = checks.UPSTREAM_UNREACHABLE, f"cannot be reached: {error}"
            case _:
                reason, text = checks.UPSTREAM_BROKE_OFF, f"broke off its answer: {error!r}"
        status = HTTPStatus.GATEWAY_TIMEOUT if isinstance(error, TimeoutError) else HTTPStatus.BAD_GATEWAY
        kind = "UpstreamTimeout" if isinstance(error, TimeoutError) else "UpstreamError"
        return Fault(reason, ErrorAnswer(status, kind, f"the inference server {text}"))


def public_url(base_url: str) -> str:
    """The server's URL without user, password and query: for spans and logs."""
    parts = urlsplit(base_url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def _request_headers(headers: Headers) -> list[tuple[str, str]]:
    forwarded = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in headers if name not in _NOT_FORWARDED
    ]
    forwarded.append(("accept-encoding", "identity"))
    return forwarded


def _answer_headers(response: aiohttp.ClientResponse) -> Headers:
    return [(name.lower(), value) for name, value in response.raw_headers if name.lower() not in _NOT_RELAYED]
