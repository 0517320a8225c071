"""Servers that a benchmark has for itself, on a folder that goes with them; and what they tell of themselves."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, NamedTuple, cast

from agl_streams.config import Settings
from agl_streams.engine import Engine
from agl_streams.server_info import parse_info
from agl_streams.store import StreamStore
from agl_streams.telemetry import configure_logging

NAMESPACE: Final = "bench"
OF_THE_COUNTING: Final = ("info", "config|resetstat")


class CommandStats(NamedTuple):
    """What the server has counted of one command."""

    calls: int
    usec: int


def quiet(settings: Settings) -> Settings:
    """Log warnings only, unless the level is chosen: servers come and go by the dozen."""
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "WARNING"})
    configure_logging(settings)
    return settings


@contextlib.asynccontextmanager
async def scratch_store(settings: Settings, *, durable: bool = True) -> AsyncGenerator[StreamStore]:
    """A store of one shard on a server of its own, which ends with the block.

    Args:
        durable: as the embedded engine is; False turns its append-only file off, for what is seeded by the million.
    """
    with tempfile.TemporaryDirectory(prefix="agl-") as folder, Engine.start(Path(folder)) as engine:
        chosen = settings.model_copy(update={"redis_url": engine.url, "shards": 1})
        async with await StreamStore.connect(settings=chosen, namespace=NAMESPACE) as store:
            if not durable:
                await store.connection.execute("CONFIG", "SET", "appendonly", "no")
            yield store


@contextlib.asynccontextmanager
async def on_cores_of_their_own(*stores: StreamStore) -> AsyncGenerator[None]:
    """This process on one core and the servers on another, where there are two and the system can be told (Linux).

    A round trip takes half as long when client and server run on the same core, or twice, as the scheduler pleases; in
    a ratio of two servers that is chance.
    """
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) == 1:
        yield
        return
    before = os.sched_getaffinity(0)
    ours, theirs, *_ = sorted(before)
    for store in stores:
        os.sched_setaffinity(int((await info(store, "server"))["process_id"]), {theirs})
    os.sched_setaffinity(0, {ours})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def info(store: StreamStore, section: str) -> dict[str, str]:
    """One section of what the server says of itself."""
    return parse_info(cast("bytes", await store.connection.execute("INFO", section)))


async def used_memory(store: StreamStore) -> int:
    """Bytes that the server holds."""
    return int((await info(store, "memory"))["used_memory"])


async def engine_cpu_s(store: StreamStore) -> float:
    """Processor time that the server has taken so far, in seconds."""
    found = await info(store, "cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


async def command_stats(store: StreamStore) -> dict[str, CommandStats]:
    """Calls and microseconds of each command since the last reset, those inside functions included."""
    stats: dict[str, CommandStats] = {}
    for name, line in (await info(store, "commandstats")).items():
        fields = dict(part.split("=", 1) for part in line.split(","))
        stats[name.removeprefix("cmdstat_")] = CommandStats(int(fields["calls"]), int(fields["usec"]))
    return {name: one for name, one in stats.items() if name not in OF_THE_COUNTING}


async def reset_stats(store: StreamStore) -> None:
    """Begin counting anew."""
    await store.connection.execute("CONFIG", "RESETSTAT")


async def server_us_of_functions(store: StreamStore) -> float:
    """Microseconds of server time of all function calls since the last reset."""
    stats = await command_stats(store)
    return float(sum(stats[name].usec for name in ("fcall", "fcall_ro") if name in stats))
