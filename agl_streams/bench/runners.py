"""P14: rollouts per second as runners are added, until the server's core is full and beyond."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from agl_streams import clock
from agl_streams.bench.report import Row
from agl_streams.bench.scratch import engine_cpu_s, scratch_store
from agl_streams.bench.work import span_of
from agl_streams.config import Settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.models import AttemptedRollout
from agl_streams.parts import Child, stop_children
from agl_streams.process import run_until_stopped
from agl_streams.store import StreamStore

STEPS: Final = (1, 2, 4, 8, 16, 32, 64)
PROCESSES: Final = 4
"""Real ones. More runners than this share them, each with connections of its own: to the server that is the same."""
WINDOW_S: Final = 1.5
ROUNDS: Final = 3
AHEAD: Final = 2  # rollouts on the queue for each runner: each is blocked now and then, and none for long
SHARE: Final = 0.9  # of the best throughput, which more runners must not fall below
START_S: Final = 60.0
LOOK_S: Final = 0.02


class Window(NamedTuple):
    """What was seen in one window: rollouts per second, and the share of a core that the server took."""

    rate: float
    core: float


async def runners(
    settings: Settings, *, steps: Sequence[int] = STEPS, rounds: int = ROUNDS, window_s: float = WINDOW_S
) -> list[Row]:
    """A row for each number of runners, and one for the worst after the best.

    A runner blocks on the queue as a real one does, stores a span of 1 KB, finishes, and queues the next rollout.
    """
    seen: dict[int, list[Window]] = {step: [] for step in steps}
    for _ in range(rounds):
        for step in steps:
            async with scratch_store(settings) as store, _running(store, step):
                seen[step].append(await _window(store, window_s))
    rates = {step: statistics.median(window.rate for window in windows) for step, windows in seen.items()}
    cores = {step: statistics.median(window.core for window in windows) for step, windows in seen.items()}
    best = max(rates, key=lambda step: rates[step])
    least = min(rates[step] for step in steps if step >= best)
    told = f"best with {best}; the machine has {os.cpu_count()} cores, for runners and server"
    return [
        *(
            Row("-", f"rollouts/s, {step} runners", rates[step], detail=f"{cores[step]:.0%} of the server's core")
            for step in steps
        ),
        Row("P14", "rollouts/s, the least with more runners over the best", least / rates[best], SHARE, detail=told),
    ]


async def _window(store: StreamStore, window_s: float) -> Window:
    begun, before, cpu = clock.monotonic_s(), await _finished(store), await engine_cpu_s(store)
    await clock.sleep_s(window_s)
    taken, after, cpu_after = clock.monotonic_s() - begun, await _finished(store), await engine_cpu_s(store)
    return Window((after - before) / taken, (cpu_after - cpu) / taken)


async def _finished(store: StreamStore) -> int:
    functions = store.functions(0)
    return cast("int", await functions.execute("XLEN", functions.keys.finished))


@contextlib.asynccontextmanager
async def _running(store: StreamStore, count: int) -> AsyncGenerator[None]:
    """So many runners at work; they end with the block."""
    for number in range(AHEAD * count):
        await store.enqueue_rollout({"task": number})
    started = [(child, child.start()) for child in _children(store, count)]
    try:
        async with asyncio.timeout(START_S):
            while await _finished(store) < AHEAD * count or await _readers(store) < count:
                await clock.sleep_s(LOOK_S)
        yield
    finally:
        await asyncio.to_thread(stop_children, started)


async def _readers(store: StreamStore) -> int:
    functions = store.functions(0)
    return len(cast("list[object]", await functions.execute("XINFO", "CONSUMERS", functions.keys.tasks, "runners")))


def _children(store: StreamStore, count: int) -> list[Child]:
    target = f"{__name__}:{run_here.__name__}"
    processes = min(PROCESSES, count)
    return [
        Child(
            name=f"runners-{process}",
            target=target,
            settings=store.settings,
            arguments={"numbers": tuple(range(process, count, processes))},
        )
        for process in range(processes)
    ]


def run_here(settings: Settings, *, numbers: Sequence[int]) -> None:
    """Some of the runners, in a process of their own. Started as a child, stopped by SIGTERM."""
    run_until_stopped(partial(_run_all, settings, numbers))


async def _run_all(settings: Settings, numbers: Sequence[int], stop: asyncio.Event) -> None:
    await asyncio.gather(*(_run(settings, number, stop) for number in numbers))


async def _run(settings: Settings, number: int, stop: asyncio.Event) -> None:
    async with await StreamStore.connect(settings=settings) as store:
        consumer = RolloutConsumer(store, f"runner-{number}")
        stopping = asyncio.create_task(_stop(consumer, stop))
        try:
            while not stop.is_set():
                for attempted in await consumer.next(1):
                    await _work(store, attempted)
        finally:
            await stopping
            await consumer.close()


async def _stop(consumer: RolloutConsumer, stop: asyncio.Event) -> None:
    await stop.wait()
    await consumer.stop()


async def _work(store: StreamStore, attempted: AttemptedRollout) -> None:
    await store.add_span(span_of(attempted), assign_sequence=True)
    await store.update_attempt(attempted.rollout_id, attempted.attempt.attempt_id, "succeeded")
    await store.enqueue_rollout(attempted.input)
