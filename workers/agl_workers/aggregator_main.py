"""The aggregator and the watchdog as a process: ``agl-streams aggregate``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from agl_streams.config import Settings
from agl_streams.errors import ConfigError
from agl_streams.logger import get_logger
from agl_streams.process import run_until_stopped
from agl_streams.store import StreamStore
from agl_workers.aggregator import Aggregator
from agl_workers.bell import LogBell
from agl_workers.loops import together
from agl_workers.watchdog import Watchdog

_log = get_logger()


def run(settings: Settings, *, shards_served: Sequence[int] | None = None) -> None:
    """Fold and expire until SIGTERM or SIGINT, then fold what is there.

    Args:
        shards_served: None for every shard of the namespace.

    Raises:
        ConfigError: there is no such shard.
        Gap, Upgrade: a log cannot be folded.
        AglError: the store cannot be used.
    """
    shards = sorted(set(range(settings.shards) if shards_served is None else shards_served))
    for shard in shards:
        if not 0 <= shard < settings.shards:
            raise ConfigError(
                f"there is no shard {shard}: namespace {settings.namespace!r} has the shards 0 to {settings.shards - 1}"
            )
    run_until_stopped(partial(_serve, settings, shards))


async def _serve(settings: Settings, shards: Sequence[int], stop: asyncio.Event) -> None:
    async with await StreamStore.connect(settings=settings) as store:
        loops = [loop for shard in shards for loop in _loops(store, shard, stop)]
        _log.info("aggregator_started", shards=list(shards), namespace=settings.namespace)
        await together(*loops)
        _log.info("aggregator_stopped", shards=list(shards))


def _loops(store: StreamStore, shard: int, stop: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
    """Bell, aggregator and watchdog of one shard: the two follow one blocked read."""
    bell = LogBell(store, shard)
    return [bell.run(stop), Aggregator(store, shard).follow(bell, stop), Watchdog(store, shard).follow(bell, stop)]
