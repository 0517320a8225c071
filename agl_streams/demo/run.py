"""The demo from end to end: engine, processes, learner, summary."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

import orjson

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.demo.display import Screen, draw
from agl_streams.demo.kill import Killing, kill_a_runner
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.stage import Stage
from agl_streams.demo.summary import Summary, summarise
from agl_streams.demo.training import Training
from agl_streams.engine import Engine
from agl_streams.store import StreamStore

LEASE_S: Final = 3.0  # short, so that --kill-a-runner is over soon
KILL_AT: Final = 0.4  # share of the batches after which a runner is killed


def main(options: DemoOptions) -> int:
    """Run the demo; 0 when every promise held, else 1.

    Raises:
        PartDied, TrainingFailed: it could not be run to its end.
    """
    with tempfile.TemporaryDirectory(prefix="agl-demo-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        given = options.settings
        url = given.redis_url or stack.enter_context(Engine.start(folder / "engine")).url
        # A namespace of its own: the numbers are those of this run, whatever else is on the server.
        namespace = given.namespace if given.namespace != "default" else f"demo-{uuid4().hex[:8]}"
        settings = given.model_copy(update={"redis_url": url, "namespace": namespace, "lease_seconds": LEASE_S})
        with Screen(options.batches, options.batch_size, silent=options.json_output) as screen:
            summary, rewards = asyncio.run(_play(options, settings, folder, screen))
        broken = summary.broken_promises(LEASE_S)
        draw(rewards, options.picture)
        screen.close(summary, options.picture, broken)
        if options.json_output:
            sys.stdout.write(orjson.dumps(summary.as_json()).decode() + "\n")
        return 1 if broken else 0


async def _play(options: DemoOptions, settings: Settings, folder: Path, screen: Screen) -> tuple[Summary, list[float]]:
    async with await StreamStore.connect(settings=settings) as store, Stage(options, settings, folder) as stage:
        training = Training(store, options, policy_url=stage.policy_url, proxy_url=stage.proxy_url)
        start = clock.monotonic_s()
        work = asyncio.create_task(_train(options, store, stage, training, screen))
        await stage.alive(work)
        seconds = clock.monotonic_s() - start
        summary = await summarise(store, training.progress, seconds, work.result())
    return summary, training.progress.rewards


async def _train(
    options: DemoOptions, store: StreamStore, stage: Stage, training: Training, screen: Screen
) -> Killing | None:
    kill_after = round(options.batches * KILL_AT) if options.kill_a_runner else None
    start = clock.monotonic_s()
    killing: asyncio.Task[Killing] | None = None
    async for step in training.steps():
        done = len(training.progress.rewards)
        rate = len(training.progress.rollout_ids) / (clock.monotonic_s() - start)
        if killing is not None and killing.done():
            screen.killed(killing.result().worker_id, len(killing.result().rollout_ids))
        screen.step(step.mean_reward, step.version, rate)
        if done == kill_after:
            killing = asyncio.create_task(kill_a_runner(store, stage))
    return None if killing is None else await killing
