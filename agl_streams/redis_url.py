"""The URLs of servers: one server, a cluster, or a service that sentinels watch. Pure.

::

    redis://[user:password@]host[:port][/db][?option=value]       rediss:// for TLS
    unix://[user:password@]/path/of/socket[?option=value]
    redis+cluster://[user:password@]host[:port][,host[:port]...]  rediss+cluster:// for TLS
    redis+sentinel://[user:password@]sentinel[:port][,sentinel[:port]...]/service[/db]
                                                                  rediss+sentinel:// for TLS

User, password and options are those of the servers. ``sentinel_username`` and ``sentinel_password`` among the options
are those of the sentinels, which have users of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from agl_streams.errors import ConfigError

SCHEMES: Final = (
    "redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel",
)  # fmt: skip
SENTINEL_PORT: Final = 26379

_PARTS: Final = re.compile(r"(?P<scheme>[^:/]+)://(?P<place>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?")
_SENTINEL_OPTIONS: Final = ("sentinel_username", "sentinel_password")

Kind = Literal["single", "cluster", "sentinel"]


@dataclass(frozen=True, slots=True, repr=False)
class ServerUrl:
    """A URL taken apart. It has no repr: it may hold a password.

    Attributes:
        kind: what is behind it.
        public: the URL without credentials and options, for messages and logs.
        seeds: URLs of single servers: the one, nodes of the cluster, or the sentinels.
        server: for sentinels, the URL of the servers, with a host that is to be replaced; else the first seed.
        service: the name that the sentinels watch; else "".
    """

    kind: Kind
    public: str
    seeds: tuple[str, ...]
    server: str
    service: str = ""


def parse(url: str) -> ServerUrl:
    """Take a URL apart.

    Raises:
        ConfigError: it cannot be read. The message holds neither user nor password.
    """
    match = _PARTS.match(url)
    scheme = match["scheme"] if match else ""
    if match is None or scheme not in SCHEMES:
        raise ConfigError(f"AGL_REDIS_URL does not begin with {', '.join(f'{name}://' for name in SCHEMES)}")
    login, at, hosts = match["place"].rpartition("@")
    plain, _, kind = scheme.partition("+")
    parts = _Parts(plain, kind, login + at, hosts, match["path"], match["query"] or "")
    if parts.kind == "cluster":
        return _cluster(parts)
    if parts.kind == "sentinel":
        return _sentinels(parts)
    _check_readable(url)
    _check_complete(url, parts.public)
    return ServerUrl("single", parts.public, (url,), url)


@dataclass(frozen=True, slots=True, repr=False)
class _Parts:
    plain: str
    kind: str
    login: str
    hosts: str
    path: str
    query: str

    @property
    def public(self) -> str:
        return f"{self.plain}{'+' if self.kind else ''}{self.kind}://{self.hosts}{self.path}"


def _cluster(parts: _Parts) -> ServerUrl:
    seeds = tuple(f"{parts.plain}://{parts.login}{host}{parts.query}" for host in parts.hosts.split(","))
    for seed in seeds:
        _check_readable(seed)
        _check_complete(seed, parts.public)
    if parts.path.strip("/") not in ("", "0"):
        raise ConfigError(f"AGL_REDIS_URL {parts.public}: a cluster has only database 0, so give no path")
    return ServerUrl("cluster", parts.public, seeds, seeds[0])


def _sentinels(parts: _Parts) -> ServerUrl:
    service, _, database = parts.path.strip("/").partition("/")
    options = dict(parse_qsl(parts.query.removeprefix("?"), keep_blank_values=True))
    user, password = (quote(options.pop(name, ""), safe="") for name in _SENTINEL_OPTIONS)
    login = f"{user}:{password}@" if password else ""
    rest = f"?{urlencode(options)}" if options else ""
    seeds = tuple(f"{parts.plain}://{login}{_with_port(host)}{rest}" for host in parts.hosts.split(","))
    first = parts.hosts.partition(",")[0]
    server = f"{parts.plain}://{parts.login}{first}{f'/{database}' if database else ''}{rest}"
    for url in (*seeds, server):
        _check_readable(url)
    if not service:
        raise ConfigError(
            f"AGL_REDIS_URL {parts.public}: the service that the sentinels watch is missing, as in "
            f"{parts.plain}+sentinel://{parts.hosts}/primary"
        )
    for url in (*seeds, server):
        _check_complete(url, parts.public)
    return ServerUrl("sentinel", parts.public, seeds, server, unquote(service))


def _with_port(host: str) -> str:
    return host if re.search(r":\d+$", host) else f"{host.rstrip(':')}:{SENTINEL_PORT}"


def _check_readable(url: str) -> None:
    try:
        _ = urlsplit(url).port  # checked only when it is asked for
    except ValueError:
        # The text of the cause may hold a piece of the password, when a "/" or "#" in it was not escaped.
        raise ConfigError(
            "AGL_REDIS_URL cannot be read: is a character of the user or password not percent-encoded?"
        ) from None


def _check_complete(url: str, public: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return
    if not parts.hostname:
        raise ConfigError(f"AGL_REDIS_URL {public}: a host is missing, as in {parts.scheme}://localhost:6379")
    database = unquote(parts.path).strip("/")
    if database and not database.isdecimal():
        raise ConfigError(f"AGL_REDIS_URL {public}: the path names a database, so {database!r} must be a number")
