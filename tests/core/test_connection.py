"""The client: commands, errors and what they name."""

from __future__ import annotations

from agl_streams.connection import RedisConnection


async def test_a_command_is_answered_in_bytes(connection: RedisConnection) -> None:
    """A command returns the raw reply of the server."""
    assert await connection.execute("PING") == b"PONG"
