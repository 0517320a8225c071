"""Whether the server can do its work: a function really runs in each shard, and the aggregator keeps up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, cast

from agl_streams.errors import AglError, StoreUnavailable
from agl_streams.store import StreamStore

MAX_LAG_S: Final = 30.0
"""How long an event may wait to be folded. An aggregator that runs folds within milliseconds."""
PATIENCE_S: Final = 3.0
"""Below the time-outs of orchestrators' probes, far above a healthy answer."""
MS_PER_S: Final = 1000
US_PER_S: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ShardReadiness:
    """How one shard is.

    Attributes:
        lag: events that are not folded; None where the server cannot count them.
        lag_seconds: how long the oldest of them has waited.
    """

    shard: int
    lag: int | None
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Readiness:
    """How the server is.

    Attributes:
        status: ``ready``; ``lagging`` when no aggregator keeps up; ``unavailable`` when the store cannot serve.
    """

    status: str
    detail: str
    shards: list[ShardReadiness]


async def readiness(store: StreamStore) -> Readiness:
    """Look at every shard. Never raises for a store that is away: that is the answer."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            shards = [await _shard(store, shard) for shard in range(store.shards)]
    except TimeoutError:
        return Readiness("unavailable", f"the store has not answered within {PATIENCE_S:g} seconds", [])
    except AglError as error:
        kind = "is away" if isinstance(error, StoreUnavailable) else "refuses to serve"
        return Readiness("unavailable", f"the store {kind}", [])
    if any(shard.lag_seconds > MAX_LAG_S for shard in shards):
        return Readiness("lagging", "events wait to be folded: is an aggregator running?", shards)
    return Readiness("ready", "", shards)


async def _shard(store: StreamStore, shard: int) -> ShardReadiness:
    functions = store.functions(shard)
    await functions.read_statuses(["readiness-probe"])
    log = functions.keys.log
    groups, now = cast("Any", await store.connection.pipeline([("XINFO", "GROUPS", log), ("TIME",)]))
    group = next((fields for flat in groups if (fields := _fields(flat))[b"name"] == b"aggregator"), None)
    if group is None:
        return ShardReadiness(shard, None, 0.0)
    after = b"(" + group[b"last-delivered-id"]
    oldest = cast("Any", await store.connection.execute("XRANGE", log, after, "+", "COUNT", 1))
    if not oldest:
        return ShardReadiness(shard, 0, 0.0)
    now_s = int(now[0]) + int(now[1]) / US_PER_S
    waited_s = now_s - int(oldest[0][0].partition(b"-")[0]) / MS_PER_S
    return ShardReadiness(shard, group.get(b"lag"), max(waited_s, 0.0))


def _fields(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
