"""Steps that the tests of clusters and sentinels share."""

from __future__ import annotations

import itertools
from typing import cast

from agl_streams.consumer import RolloutConsumer
from agl_streams.keys import shard_of
from agl_streams.models import AttemptedRollout
from agl_streams.store import StreamStore
from tests.support.servers import Server


def id_in_shard(store: StreamStore, shard: int, prefix: str = "ro") -> str:
    """A rollout id that lives in a shard."""
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if shard_of(name, store.shards) == shard)


def blocked(server: Server, count: int) -> bool:
    """Whether so many clients block at a server."""
    return f"blocked_clients:{count}\r\n".encode() in cast("bytes", server.execute("INFO", "clients"))


async def take_one(consumer: RolloutConsumer) -> AttemptedRollout:
    """Ask until there is a rollout, as a runner does."""
    while not (taken := await consumer.next(1)):
        pass
    return taken[0]
