"""The demo from end to end: engine, processes, learner, summary."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import orjson

from agl_streams import clock
from agl_streams.config import Settings
from agl_streams.demo.display import Screen, check_picture, draw
from agl_streams.demo.kill import Killing, kill_a_runner
from agl_streams.demo.learner import Step
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.stage import Stage
from agl_streams.demo.summary import Summary, summarise
from agl_streams.demo.training import Training, TrainingFailed
from agl_streams.engine import Engine
from agl_streams.errors import AglError, ConfigError
from agl_streams.process import run_until_stopped
from agl_streams.store import StreamStore
from agl_streams.telemetry import configure_logging

LEASE_S: Final = 3.0  # short, so that --kill-a-runner is over soon
KILL_AT: Final = 0.4  # share of the batches after which a runner is killed
EXIT_BROKEN: Final = 1
EXIT_STOPPED: Final = 130  # as a shell has it after Ctrl-C


class Watcher(Protocol):
    """Who is told how it goes; a `Screen` is one."""

    def ready(self, name: str) -> None:
        """A process is ready."""
        ...

    def step(self, step: Step, rate: float) -> None:
        """A batch is done; rollouts per second so far."""
        ...

    def killed(self, killing: Killing, lease_s: float) -> None:
        """A runner was killed on purpose."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run that came to its end leaves.

    Attributes:
        rewards: mean reward of each batch.
        namespace: where its records are.
    """

    summary: Summary
    rewards: list[float]
    namespace: str


def main(options: DemoOptions) -> int:
    """Run the demo; 0 when every promise held, 1 when not, 130 when SIGINT or SIGTERM ended it early.

    Raises:
        ConfigError: it cannot be run so.
        PartDied, TrainingFailed, AglError: it could not be run to its end.
    """
    check_picture(options.picture)
    with Screen(options.batches, options.batch_size, silent=options.json_output) as screen:
        _configure_logging(options.settings)
        try:
            outcome = _run(options, screen)
        except AglError as error:
            screen.failed(getattr(error, "__notes__", ()))
            raise
    if outcome is None:
        screen.stopped()
        return EXIT_STOPPED
    broken = outcome.summary.broken_promises(LEASE_S)
    screen.close(outcome.summary, broken)
    if options.json_output:
        sys.stdout.write(orjson.dumps(outcome.summary.as_json()).decode() + "\n")
    draw(outcome.rewards, options.picture)
    screen.left(options.picture, outcome.namespace if options.settings.redis_url else None)
    return EXIT_BROKEN if broken else 0


async def play(options: DemoOptions, settings: Settings, folder: Path, watcher: Watcher) -> Outcome:
    """Start the processes, train, count, and stop the processes.

    Args:
        settings: with a server, and a namespace in which there are no rollouts yet.
        folder: for the logs.

    Raises:
        ConfigError: there are rollouts in the namespace.
        PartDied, TrainingFailed, AglError: it could not be run to its end; the notes tell what the logs say to it.
    """
    async with await StreamStore.connect(settings=settings) as store:
        if await store.query_rollouts(limit=1):
            raise ConfigError(
                f"there are rollouts in the namespace {settings.namespace!r} already: choose another with --namespace, "
                "or choose none and the demo makes one"
            )
        async with Stage(options, settings, folder, watcher.ready) as stage:
            return await stage.while_alive(_train(options, store, stage, watcher))


def _run(options: DemoOptions, screen: Screen) -> Outcome | None:
    """Play, on a server and in a namespace of its own unless others are given. None: a signal has stopped it."""
    with tempfile.TemporaryDirectory(prefix="agl-demo-") as name, contextlib.ExitStack() as stack:
        folder, given = Path(name), options.settings
        url = given.redis_url or stack.enter_context(Engine.start(folder / "engine")).url
        namespace = given.namespace if given.namespace != "default" else f"demo-{uuid4().hex[:8]}"
        settings = given.model_copy(update={"redis_url": url, "namespace": namespace, "lease_seconds": LEASE_S})
        outcomes: list[Outcome] = []

        async def unless_stopped(stop: asyncio.Event) -> None:
            playing = asyncio.create_task(play(options, settings, folder, screen))
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                playing.cancel()
                await asyncio.wait({playing})
            if not playing.cancelled():
                outcomes.append(playing.result())

        run_until_stopped(unless_stopped)
        return outcomes[0] if outcomes else None


async def _train(options: DemoOptions, store: StreamStore, stage: Stage, watcher: Watcher) -> Outcome:
    training = Training(store, options, policy_url=stage.policy_url, proxy_url=stage.proxy_url)
    progress = training.progress
    kill_after = max(round(options.batches * KILL_AT), 1) if options.kill_a_runner else None
    killing: asyncio.Task[Killing] | None = None
    start = clock.monotonic_s()
    try:
        async with contextlib.aclosing(training.steps()) as steps:
            async for step in steps:
                watcher.step(step, len(progress.rollout_ids) / (clock.monotonic_s() - start))
                if len(progress.rewards) == kill_after:
                    killing = asyncio.create_task(kill_a_runner(store, stage))
                    killing.add_done_callback(partial(_tell, watcher, store.settings.lease_seconds))
        seconds = clock.monotonic_s() - start
    finally:
        if killing is not None:
            killing.cancel()
            await asyncio.wait({killing})
    if killing is not None and killing.cancelled():
        raise TrainingFailed("the runner that was to be killed held no rollout in all the batches after that")
    summary = await summarise(store, progress, seconds, killing.result() if killing else None)
    return Outcome(summary, progress.rewards, store.settings.namespace)


def _tell(watcher: Watcher, lease_s: float, killing: asyncio.Task[Killing]) -> None:
    if not killing.cancelled() and killing.exception() is None:
        watcher.killed(killing.result(), lease_s)


def _configure_logging(settings: Settings) -> None:
    """Log to where the screen has standard error now; only warnings, unless a level was asked for."""
    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "WARNING"})
    configure_logging(settings)
