"""A plain client for tests: one command, the raw RESP2 reply, no code of ours in between."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from redis.connection import Connection, parse_url  # pyright: ignore[reportUnknownVariableType]  # typed by the cast


class Raw:
    """A blocking connection. Replies are bytes, int, None or lists; an error reply is raised as redis-py's."""

    def __init__(self, url: str) -> None:
        options = cast("dict[str, Any]", parse_url(url))
        connection_class = cast("type[Any]", options.pop("connection_class", Connection))
        self._connection: Any = connection_class(**{"socket_timeout": 20, "protocol": 2, **options})

    def execute(self, *args: bytes | str | float) -> Any:
        """Send one command and return its reply."""
        self._connection.send_command(*args)
        return self._connection.read_response()

    def execute_many(self, commands: Sequence[Sequence[bytes | str | float]]) -> list[Any]:
        """Send commands in one piece and return their replies, in order."""
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        return [self._connection.read_response() for _ in commands]

    def close(self) -> None:
        """Disconnect."""
        self._connection.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ask(url: str, *args: bytes | str | float) -> Any:
    """One command on a connection of its own."""
    with Raw(url) as raw:
        return raw.execute(*args)
