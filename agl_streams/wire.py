"""The wire to one server: what a URL means, packed commands out, replies in, redis-py's exceptions into ours.

``connection.py`` builds on this; nothing else should. redis-py's ``Connection`` does sockets, TLS, hand-shake and
parsing; its ``Redis`` client is left out, because a command through it costs a task of its own for the write time-out
on Python 3.11, and because its retries cannot be told "never" for a single command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import SplitResult, unquote, urlsplit

from hiredis import pack_command  # pyright: ignore[reportUnknownVariableType]  # typed by cast below
from redis import exceptions as redis_errors
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from agl_streams import errors

Arg: TypeAlias = bytes | str | int | float
Reply: TypeAlias = bytes | int | list["Reply"] | None

CONNECT_TIMEOUT_S = 3.0  # a TCP hand-shake with one lost SYN takes 1 s, with two 3 s
COMMAND_TIMEOUT_S = 5.0  # our functions take milliseconds; a fork or fsync of a loaded server stalls it for seconds
MAX_CONNECTIONS = 2  # one for large commands and one for all others: a server works one command at a time

RESP2 = 2  # one reply format on every server, from Redis 7.0 to Valkey 9

# Answers that say "not now": the same command may succeed a moment later.
TRANSIENT_CODES = frozenset({"LOADING", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "BUSY"})
_AUTH_CODES = frozenset({"NOAUTH", "WRONGPASS"})
_CLUSTER_AND_SENTINEL = ("redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel")
_SCHEMES = ("redis", "rediss", "unix")

_pack_command = cast("Callable[[tuple[Arg, ...]], bytes]", pack_command)  # hiredis declares a tuple of one


class Wire(Protocol):
    """The part of redis-py's ``Connection`` that is used here, with the types that it does not declare."""

    @property
    def is_connected(self) -> bool: ...
    async def connect(self) -> None: ...
    async def can_read(self) -> bool: ...
    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None: ...
    async def read_response(self) -> Reply: ...
    async def disconnect(self, nowait: bool = False) -> None: ...


class Address:
    """Where a URL points, and how to make connections to it.

    Attributes:
        public: the URL without credentials, for messages and logs.
        command_timeout_s: seconds that one command, or one pipeline, may take.
    """

    def __init__(self, url: str) -> None:
        """Raises ``ConfigError``: the URL is malformed, has an unknown option, or names an unsupported topology."""
        self.public = public_url(url)
        options = {"socket_timeout": COMMAND_TIMEOUT_S, "max_connections": MAX_CONNECTIONS, **_options_of(url)}
        for name in ("socket_timeout", "socket_connect_timeout", "max_connections"):
            if options.get(name, 1) <= 0:
                raise errors.ConfigError(f"AGL_REDIS_URL {self.public}: {name}={options[name]} must be above 0")
        self.command_timeout_s: float = options.pop("socket_timeout")
        self.max_connections = int(options.pop("max_connections"))
        self._connection_class = cast("type[Any]", options.pop("connection_class", TcpConnection))
        self._options: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            **options,
            # The time limit of a command is set around the whole of it, and a blocked read has none but its own
            # (redis-py #2807, #3138). So the socket has none, whatever the URL says.
            "socket_timeout": None,
            "retry": Retry(NoBackoff(), 0),  # retries have one owner: RedisConnection.execute
            "protocol": RESP2,
            "decode_responses": False,
        }
        self.connection()  # an unknown option shows here, not at the first command

    def connection(self) -> Wire:
        """A new connection object; it connects by itself on first use."""
        try:
            return cast("Wire", self._connection_class(**self._options))
        except TypeError:
            known = {*self._options} - {"socket_timeout", "retry", "protocol", "decode_responses"}
            raise errors.ConfigError(
                f"AGL_REDIS_URL {self.public} has an option that redis-py does not know, one of {sorted(known)}: "
                "see redis.asyncio.Connection for the names"
            ) from None  # the cause holds every option, the password among them


def public_url(url: str) -> str:
    """The URL without user, password and query: fit for a message. Raises ``ConfigError`` when it is none."""
    parts = _split(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _split(url: str) -> SplitResult:
    scheme = url.partition("://")[0]
    if scheme in _CLUSTER_AND_SENTINEL:
        raise errors.ConfigError(
            f"AGL_REDIS_URL: {scheme}:// is not supported yet; give the address of a single server "
            "as redis://, rediss:// or unix://"
        )
    if scheme not in _SCHEMES:
        raise errors.ConfigError("AGL_REDIS_URL does not begin with redis://, rediss:// or unix://")
    try:
        parts = urlsplit(url)
        _ = parts.port  # checked only when it is asked for
    except ValueError:
        # The text of the cause may hold a piece of the password, when a "/" or "#" in it was not escaped.
        raise errors.ConfigError(
            "AGL_REDIS_URL cannot be read: is a character of the user or password not percent-encoded?"
        ) from None
    return parts


def _options_of(url: str) -> dict[str, Any]:
    parts = _split(url)
    database = unquote(parts.path).strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise errors.ConfigError(
            f"AGL_REDIS_URL {public_url(url)}: the path names a database, so {database!r} must be a number"
        )
    try:
        return cast("dict[str, Any]", parse_url(url))
    except ValueError as error:
        raise errors.ConfigError(f"AGL_REDIS_URL {public_url(url)}: {error}") from error


def pack(args: Sequence[Arg]) -> bytes:
    """One command as it goes over the wire.

    Raises:
        InvalidRequest: an argument is not bytes, str, int or float (bool and None included), or cannot be UTF-8.
    """
    try:
        return _pack_command(args if isinstance(args, tuple) else tuple(args))
    except (TypeError, UnicodeEncodeError) as error:
        kinds = ", ".join(type(arg).__name__ for arg in args)
        raise errors.InvalidRequest(f"cannot send {args[:1]!r} with arguments of type ({kinds}): {error}") from error


def take_stream(wire: Wire) -> asyncio.StreamWriter:
    """The stream of a connected wire, to speak on it without redis-py: the wire is as if it had never connected."""
    inner = cast("Any", wire)  # redis-py has no public way to it
    stream = cast("asyncio.StreamWriter", inner._writer)
    inner._reader = inner._writer = None
    return stream


async def ready(wire: Wire) -> bool:
    """Connect if need be; whether that was needed. A connection closed by the server while idle "can be read"."""
    if wire.is_connected:
        if not await wire.can_read():
            return False
        await wire.disconnect(nowait=True)
    await wire.connect()
    return True


FAULTS = (redis_errors.RedisError, OSError, TimeoutError)
"""Everything that a call to the server may raise: translate it, and look at ``is_transient`` before giving up."""


def is_transient(error: BaseException) -> bool:
    """Whether the same command, sent again in a moment, may succeed."""
    error = _unwrapped(error)
    if isinstance(error, redis_errors.AuthenticationError | redis_errors.AuthorizationError):
        return False
    code = _code_and_text(error)[0]
    if isinstance(error, redis_errors.ResponseError):
        return code in TRANSIENT_CODES
    return isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError | OSError)


def _unwrapped(error: BaseException) -> BaseException:
    """redis-py hides an error reply of the hand-shake over a unix socket in a ConnectionError."""
    cause = error.__cause__
    return cause if isinstance(cause, redis_errors.RedisError) else error


def _code_and_text(error: BaseException) -> tuple[str, str]:
    """First word and full text of an error reply, which redis-py takes apart for the codes that it knows."""
    text = str(error)
    code = getattr(error, "status_code", None)
    if isinstance(code, str):
        return code, f"{code} {text}"
    return text.partition(" ")[0], text


def translate(error: BaseException, public: str) -> errors.AglError:
    """Our error for a fault of the server at ``public``. No message holds a credential."""
    error = _unwrapped(error)
    code, text = _code_and_text(error)
    if isinstance(error, redis_errors.AuthenticationError) or code in _AUTH_CODES:
        return errors.AuthenticationFailed(_authentication_advice(code, text, public))
    if code in _BY_CODE:
        kind, advice = _BY_CODE[code]
        return kind(f"{public} answered {text!r}: {advice}")
    if isinstance(error, redis_errors.ResponseError):
        return errors.CommandFailed(code, text)
    if isinstance(error, redis_errors.TimeoutError | TimeoutError):
        return errors.StoreUnavailable(f"{public} did not answer in time: {text or 'the command timed out'}")
    cause = text.rstrip(".")
    return errors.StoreUnavailable(f"cannot reach {public}: {cause}. Is the server running, and AGL_REDIS_URL right?")


def _authentication_advice(code: str, text: str, public: str) -> str:
    if code == "NOAUTH":
        return f"{public} needs a password: put it into AGL_REDIS_URL, as redis://:password@host"
    if code == "WRONGPASS":
        return f"{public} refuses the user or password in AGL_REDIS_URL (WRONGPASS)"
    return f"{public} refuses to authenticate us: {text}"


_NOT_NOW = (errors.StoreUnavailable, "it cannot serve commands at this moment")
_BY_CODE: Mapping[str, tuple[type[errors.AglError], str]] = {
    "OOM": (errors.OutOfMemory, "the server is at its maxmemory; retire finished rollouts or give it more"),
    "READONLY": (errors.ServerReadOnly, "this is a replica; point AGL_REDIS_URL at the primary"),
    "NOREPLICAS": (errors.NotReplicated, "the server has fewer good replicas than its min-replicas-to-write"),
    "NOPERM": (errors.ServerRefused, "the ACL user in AGL_REDIS_URL lacks a permission; ~agl:* and +@all are needed"),
    "MISCONF": (errors.StoreUnavailable, "the server cannot write to its disk and refuses writes; see its log"),
    **dict.fromkeys(TRANSIENT_CODES, _NOT_NOW),
}
