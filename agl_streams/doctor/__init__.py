"""The doctor: looks at a server and a namespace, and says what is wrong and what to do. It changes nothing."""

from __future__ import annotations

from agl_streams.config import Settings
from agl_streams.connection import RedisConnection
from agl_streams.doctor.findings import Finding
from agl_streams.doctor.namespace import examine_namespace
from agl_streams.doctor.server import examine_server, run_id
from agl_streams.errors import AglError
from agl_streams.keys import ShardKeys

__all__ = ["Finding", "examine"]


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything.

    Args:
        settings: ``redis_url`` must be set. What they ask for, such as replicas, is what is held against what is there.

    Returns:
        A finding for each thing that was looked at. A server that cannot be reached or used is a finding as well.
    """
    # Without the replicas that it may lack: to say so is the point.
    lenient = settings.model_copy(update={"min_replicas": 0})
    try:
        connection = await RedisConnection.open(settings.redis_url or "", settings=lenient)
    except AglError as error:
        return [Finding("server", "problem", str(error), "nothing of ours can run", "see the message")]
    try:
        return [*await _servers(connection, settings), *await examine_namespace(connection, settings)]
    finally:
        await connection.close()


async def _servers(connection: RedisConnection, settings: Settings) -> list[Finding]:
    """Each server that holds a shard, once."""
    homes: dict[str, str] = {}
    for shard in range(settings.shards):
        near = ShardKeys(settings.namespace, shard).meta
        homes.setdefault(await run_id(connection, near), near)
    findings: list[Finding] = []
    for number, near in enumerate(homes.values(), start=1):
        where = f"server {number}" if len(homes) > 1 else ""
        used = bool(await connection.execute("EXISTS", near))
        findings += await examine_server(connection, settings, near, used=used, where=where)
    return findings
