"""The sockets that the server processes accept from, all on one port."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Final

from agl_streams.errors import ConfigError

BACKLOG: Final = 2048
"""Connections waiting to be accepted: a trainer may start all its runners at once."""


def listen(host: str, port: int, processes: int) -> list[socket.socket]:
    """A listening socket for each process, on one address; port 0 is any free one.

    Each process has a socket of its own and the kernel deals out connections among them (``SO_REUSEPORT``), evenly:
    from one shared socket the process that wakes first takes every connection there is, and keeps it. The first socket
    is bound *before* it is opened to others, which fails if anybody has the port, another server of ours included. The
    starting process keeps all of them open, so a connection that waits at a killed process is served by its successor.
    Where the kernel does not deal out (outside Linux), all processes share the first.

    Raises:
        ConfigError: somebody else listens there, or the host is not this machine's.
    """
    try:
        first = _bound(host, port, shared=False)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {_reason(error)}; choose another --host or --port"
        ) from error
    sockets = [first]
    if processes > 1 and sys.platform == "linux":
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        chosen = first.getsockname()[1]
        sockets += [_bound(host, chosen, shared=True) for _ in range(processes - 1)]
    for one in sockets:
        one.listen(BACKLOG)
    return [sockets[number % len(sockets)] for number in range(processes)]


def _bound(host: str, port: int, *, shared: bool) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # no wait for connections of a stopped server
        if shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there, perhaps a server that is running already"
    return str(error.strerror or error)
