"""A relay in front of a server that carries each writing call out and drops its first reply with the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

FUNCTION_CALL = b"\r\nFCALL\r\n"


class CuttingRelay:
    """Relays commands one by one. What is cut once is let through when it comes again.

    Attributes:
        cut: the calls whose first reply was dropped, as they went over the wire.
    """

    def __init__(self, server_url: str) -> None:
        self._server_path = unquote(urlsplit(server_url).path)
        self.cut: set[bytes] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it, or a reply is dropped."""
        upstream, to_server = await asyncio.open_unix_connection(self._server_path)
        try:
            while True:
                call = await _message(reader)
                to_server.write(call)
                reply = await _message(upstream)
                if FUNCTION_CALL in call and call not in self.cut:
                    self.cut.add(call)
                    return
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # one side has gone
        finally:
            to_server.close()
            writer.close()


@asynccontextmanager
async def cutting_relay(server_url: str, directory: Path) -> AsyncGenerator[tuple[CuttingRelay, str]]:
    """A relay on a socket in a directory; gives it and its URL."""
    relay, path = CuttingRelay(server_url), directory / "relay.sock"
    server = await asyncio.start_unix_server(relay.serve, path)
    async with server:
        yield relay, f"unix://{quote(str(path))}"


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One command or reply of RESP2 as raw bytes."""
    line = await reader.readuntil(b"\r\n")
    kind, length = line[:1], line[1:-2]
    if kind == b"$" and length != b"-1":
        return line + await reader.readexactly(int(length) + 2)
    if kind == b"*" and length != b"-1":
        return line + b"".join([await _message(reader) for _ in range(int(length))])
    return line
