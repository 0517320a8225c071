"""The wire to one server: what a URL means, packed commands out, replies in, redis-py's exceptions into ours.

``connection.py`` builds on this; nothing else should. redis-py's ``Connection`` does sockets, TLS, hand-shake and
parsing; its ``Redis`` client is left out, because a command through it costs a task of its own for the write time-out
on Python 3.11, and because its retries cannot be told "never" for a single command.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import hiredis
from hiredis import pack_command  # pyright: ignore[reportUnknownVariableType]  # typed by cast below
from redis import exceptions as redis_errors
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.connection import DefaultParser, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from agl_streams import errors
from agl_streams.redis_url import parse

Arg: TypeAlias = bytes | str | int | float
Reply: TypeAlias = bytes | int | list["Reply"] | None

CONNECT_TIMEOUT_S = 3.0  # a TCP hand-shake with one lost SYN takes 1 s, with two 3 s
COMMAND_TIMEOUT_S = 5.0  # our functions take milliseconds; a fork or fsync of a loaded server stalls it for seconds
MAX_CONNECTIONS = 2  # one for large commands and one for all others: a server works one command at a time

RESP2 = 2  # one reply format on every server, from Redis 7.0 to Valkey 9

# Answers that say "not now": the same command may succeed a moment later.
TRANSIENT_CODES = frozenset({"LOADING", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "BUSY"})
_AUTH_CODES = frozenset({"NOAUTH", "WRONGPASS"})
_PRIMARY = b"master"  # as a server names its role

_parse_error = cast("Callable[[str], Exception]", DefaultParser.parse_error)  # pyright: ignore[reportUnknownMemberType]  # that is why it is cast
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


class Place(NamedTuple):
    """Host and port of a server."""

    host: str
    port: int


class Address:
    """Where one server is, and how to make connections to it.

    Attributes:
        public: its URL without credentials, for messages and logs.
        command_timeout_s: seconds that one command, or one pipeline, may take.
    """

    def __init__(self, url: str) -> None:
        """Raises ``ConfigError``: the URL is malformed, or has an unknown option."""
        self.public = parse(url).public
        self._primary_only = False
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

    @property
    def place(self) -> Place:
        """Host and port."""
        return Place(self._options["host"], int(self._options["port"]))

    def at(self, place: Place, *, primary_only: bool = False) -> Address:
        """Another server with the same user and options.

        Args:
            primary_only: a connection to it fails with READONLY where it is a replica. For a server that answers reads
                as a replica too: what it says would be of the past.
        """
        other = copy.copy(self)
        other._options = {**self._options, "host": place.host, "port": place.port}
        other._primary_only = primary_only
        host = f"[{place.host}]" if ":" in place.host else place.host
        other.public = f"{self.public.partition('://')[0]}://{host}:{place.port}"
        return other

    async def connect(self, wire: Wire) -> None:
        """Connect, and make sure that it is a primary where that is asked for."""
        await wire.connect()
        if self._primary_only:
            await wire.send_packed_command(
                pack(("HELLO", RESP2)), check_health=False
            )  # tells the role, and changes nothing
            told = cast("list[Reply]", await wire.read_response())
            if told[told.index(b"role") + 1] != _PRIMARY:
                raise redis_errors.ReadOnlyError(f"{self.public} is no primary any more", status_code="READONLY")

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


def _options_of(url: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", parse_url(url))
    except ValueError as error:
        raise errors.ConfigError(f"AGL_REDIS_URL {parse(url).public}: {error}") from error


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


Cut = redis_errors.ConnectionError
NotTheProtocol = redis_errors.InvalidResponse
IsReplica = redis_errors.ReadOnlyError


class Parser(Protocol):
    """What makes replies of bytes."""

    def feed(self, data: bytes, /) -> None: ...
    def gets(self) -> Any: ...


def reply_parser() -> Parser:
    """A parser with redis-py's exceptions. ``gets`` returns False when no reply is complete.

    It returns error replies and raises ``NotTheProtocol``.
    """
    return hiredis.Reader(protocolError=NotTheProtocol, replyError=_parse_error)


def take_stream(wire: Wire) -> asyncio.StreamWriter:
    """The stream of a connected wire, to speak on it without redis-py: the wire is as if it had never connected."""
    inner = cast("Any", wire)  # redis-py has no public way to it
    stream = cast("asyncio.StreamWriter", inner._writer)
    inner._reader = inner._writer = None
    return stream


async def ready(address: Address, wire: Wire) -> bool:
    """Connect if need be; whether that was needed. A connection closed by the server while idle "can be read"."""
    if wire.is_connected:
        if not await wire.can_read():
            return False
        await wire.disconnect(nowait=True)
    await address.connect(wire)
    return True


FAULTS = (redis_errors.RedisError, OSError, TimeoutError)
"""Everything that a call to the server may raise: translate it, and look at ``is_transient`` before giving up."""


def moved_to(error: BaseException) -> tuple[int, Place] | None:
    """For a MOVED reply the slot and where it is now; the host is "" where it is that of the node that said so."""
    if isinstance(error, redis_errors.MovedError):
        host = cast("str", error.host)  # pyright: ignore[reportUnknownMemberType]  # redis-py does not declare it
        return error.slot_id, Place(host, error.port)
    return None


def is_transient(error: BaseException, more: frozenset[str] = frozenset()) -> bool:
    """Whether the same command, sent again in a moment, may succeed; ``more`` codes of error replies mean that too."""
    error = _unwrapped(error)
    if isinstance(error, redis_errors.AuthenticationError | redis_errors.AuthorizationError):
        return False
    code = _code_and_text(error)[0]
    if isinstance(error, redis_errors.ResponseError):
        return code in TRANSIENT_CODES or code in more
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


_MOVED = (errors.StoreUnavailable, "what it served is, or will soon be, served by another node")
_NOT_NOW = (errors.StoreUnavailable, "it cannot serve commands at this moment")
_BY_CODE: Mapping[str, tuple[type[errors.AglError], str]] = {
    "OOM": (errors.OutOfMemory, "the server is at its maxmemory; retire finished rollouts or give it more"),
    "READONLY": (errors.ServerReadOnly, "this is a replica; point AGL_REDIS_URL at the primary"),
    "NOREPLICAS": (errors.NotReplicated, "the server has fewer good replicas than its min-replicas-to-write"),
    "NOPERM": (
        errors.ServerRefused,
        "the ACL user in AGL_REDIS_URL lacks a permission; docs/operations.md has the list",
    ),
    "MISCONF": (errors.StoreUnavailable, "the server cannot write to its disk and refuses writes; see its log"),
    **dict.fromkeys(("MOVED", "ASK"), _MOVED),
    **dict.fromkeys(TRANSIENT_CODES, _NOT_NOW),
}
