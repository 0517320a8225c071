"""P6: from the end of a rollout until somebody who waited for it goes on, among thousands who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from agl_streams import clock
from agl_streams.bench.report import MS_PER_S, Row, quantile
from agl_streams.bench.scratch import CommandStats, command_stats, reset_stats, scratch_store
from agl_streams.bench.work import opened
from agl_streams.config import Settings
from agl_streams.models import AttemptedRollout
from agl_streams.store import StreamStore

WAITERS: Final = 3000
FINISHES: Final = 400
WINDOW_S: Final = 2.0  # in which the server's commands are counted
LOOK_S: Final = 0.01
SENT: Final = ("fcall", "fcall_ro", "xread")
NONE: Final = CommandStats(0, 0)
MOST: Final = 1.1  # of the commands with one waiter: a blocked read that ends by itself may fall into a window


async def waiting(
    settings: Settings, *, waiters: int = WAITERS, finishes: int = FINISHES, window_s: float = WINDOW_S
) -> list[Row]:
    """How soon a waiter goes on, and how many commands waiting costs the server."""
    async with scratch_store(settings) as store:
        alone = await _commands(store, 1, finishes, window_s)
        many = await _commands(store, waiters, finishes, window_s)
        waits = await _waits(store, waiters, finishes)
    detail = f"{finishes} ends of {waiters:,}, one after another, slowest {max(waits):.2f} ms"
    what = f"end of a rollout until its waiter has it, {waiters:,} waiters in one process"
    ratio = _calls(many) / _calls(alone)
    shown = f"{_told(many)}; with one waiter {_told(alone)}"
    commands = (
        f"server commands with {waiters:,} waiters over those with one, {finishes} ends and {window_s:g} s of rest"
    )
    return [
        Row("P6", f"{what}, p50 ms", quantile(waits, 0.5), 1, "low", detail),
        Row("P6", f"{what}, p99 ms", quantile(waits, 0.99), 5, "low", detail),
        Row("P6", commands, ratio, MOST, "low", shown),
    ]


async def _commands(store: StreamStore, waiters: int, finishes: int, window_s: float) -> dict[str, CommandStats]:
    """What the server does while rollouts end that nobody waits for, and then nothing happens."""
    awaited = [await opened(store) for _ in range(waiters)]
    others = [await opened(store) for _ in range(finishes)]
    tasks = await _all_waiting(store, awaited)
    await reset_stats(store)
    for one in others:
        await _finish(store, one)
    await clock.sleep_s(window_s)
    stats = await command_stats(store)
    for one in awaited:
        await _finish(store, one)
    await asyncio.gather(*tasks)
    return stats


async def _waits(store: StreamStore, waiters: int, finishes: int) -> list[float]:
    """Milliseconds from the call that ends a rollout until its waiter has the rollout."""
    awaited = [await opened(store) for _ in range(waiters)]
    tasks = await _all_waiting(store, awaited)
    waits: list[float] = []
    for place, one in enumerate(awaited):
        start = clock.monotonic_s()
        await _finish(store, one)
        end = await tasks[place]
        if place < finishes:
            waits.append((end - start) * MS_PER_S)
    return waits


async def _wait(store: StreamStore, attempted: AttemptedRollout) -> float:
    """When the wait for a rollout is over."""
    await store.wait_for_rollouts(rollout_ids=[attempted.rollout_id])
    return clock.monotonic_s()


async def _finish(store: StreamStore, attempted: AttemptedRollout) -> None:
    await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, "succeeded")


async def _all_waiting(store: StreamStore, awaited: Sequence[AttemptedRollout]) -> list[asyncio.Task[float]]:
    """A task for each rollout that waits for it; all have looked at their rollouts, and now hear of ends alone."""
    await reset_stats(store)
    tasks = [asyncio.create_task(_wait(store, one)) for one in awaited]
    while (await command_stats(store)).get("fcall_ro", NONE).calls < len(awaited):
        await clock.sleep_s(LOOK_S)
    return tasks


def _calls(stats: dict[str, CommandStats]) -> int:
    return sum(one.calls for one in stats.values())


def _told(stats: dict[str, CommandStats]) -> str:
    sent = ", ".join(f"{name} {stats[name].calls}" for name in SENT if name in stats)
    return f"{_calls(stats):,} commands, those inside functions included ({sent})"
