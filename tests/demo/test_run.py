"""Whole runs of the demo, small ones: one from the command line, and one whose runner is killed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agl_streams.adapters import TripletAdapter
from agl_streams.config import Settings, load_settings
from agl_streams.demo.kill import Killing
from agl_streams.demo.learner import Learner, Step
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.policy import Policy
from agl_streams.demo.run import LEASE_S, Outcome, play
from agl_streams.demo.summary import JSON_FIELDS
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.engine import Engine
from agl_streams.errors import ConfigError
from agl_streams.models import Triplet
from agl_streams.store import StreamStore
from tests.demo.stages import BATCH_SIZE, BATCHES, RUNNERS, SEED

ROLLOUTS = BATCHES * BATCH_SIZE
PLAIN = "plain"
KILLED = "killed"


@dataclass
class Recorder:
    """Watches a run as the screen does, and remembers."""

    parts: list[str] = field(default_factory=list[str])
    steps: list[Step] = field(default_factory=list[Step])
    killings: list[Killing] = field(default_factory=list[Killing])

    def ready(self, name: str) -> None:
        """A process is ready."""
        self.parts.append(name)

    def step(self, step: Step, rate: float) -> None:
        """A batch is done."""
        assert rate > 0
        self.steps.append(step)

    def killed(self, killing: Killing, lease_s: float) -> None:
        """A runner was killed."""
        assert lease_s == LEASE_S
        self.killings.append(killing)


@dataclass
class Printed:
    """What a command left."""

    status: int
    stdout: str
    stderr: str


@dataclass
class Runs:
    """Two runs of the same seed on one server, in namespaces of their own.

    Attributes:
        printed: by the command line, without streaming and with --json.
        curve: the picture that it drew.
        outcome, recorder: of the run with streaming whose runner was killed.
    """

    url: str
    printed: Printed
    curve: Path
    outcome: Outcome
    recorder: Recorder

    async def rollouts(self, namespace: str) -> dict[str, list[Triplet]]:
        """The triplets of each rollout's newest attempt, from the store alone."""
        async with await StreamStore.connect(self.url, namespace=namespace) as store:
            rollout_ids = [rollout.rollout_id for rollout in await store.query_rollouts(sort_by="rollout_id")]
            spans = [await store.query_spans(rollout_id, "latest") for rollout_id in rollout_ids]
        adapter = TripletAdapter(reward_match="final")
        return {one: adapter.adapt(found).triplets for one, found in zip(rollout_ids, spans, strict=True)}


@pytest.fixture(scope="module")
def runs() -> Generator[Runs]:
    """Both runs, once for all tests of this module."""
    directory = Path(tempfile.mkdtemp(prefix="agl-"))
    curve = directory / "curve.svg"
    recorder = Recorder()
    with Engine.start(directory / "engine") as engine:
        with _from_the_command_line(engine.url, curve) as plain:
            outcome = asyncio.run(play(_options(engine.url), _settings(engine.url, KILLED), directory, recorder))
            stdout, stderr = plain.communicate()
        yield Runs(engine.url, Printed(plain.returncode, stdout, stderr), curve, outcome, recorder)
    shutil.rmtree(directory)


def _settings(url: str, namespace: str) -> Settings:
    return load_settings(redis_url=url, namespace=namespace, lease_seconds=LEASE_S)


def _options(url: str) -> DemoOptions:
    return DemoOptions(
        settings=_settings(url, KILLED),
        runners=RUNNERS,
        seed=SEED,
        batches=BATCHES,
        batch_size=BATCH_SIZE,
        kill_a_runner=True,
    )


def _from_the_command_line(url: str, curve: Path) -> subprocess.Popen[str]:
    size = ["--batches", str(BATCHES), "--batch-size", str(BATCH_SIZE), "--runners", str(RUNNERS), "--seed", str(SEED)]
    place = ["--redis-url", url, "--namespace", PLAIN, "--picture", str(curve)]
    argv = [sys.executable, "-m", "agl_streams.cli", "demo", "--json", "--no-stream", *size, *place]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def substance(rollouts: dict[str, list[Triplet]]) -> dict[str, list[Any]]:
    """What the triplets say, without the ids of spans, attempts and answers."""
    return {
        rollout_id: [(triplet.prompt, triplet.response, triplet.reward) for triplet in triplets]
        for rollout_id, triplets in rollouts.items()
    }


def test_json_is_one_object_with_the_documented_fields(runs: Runs) -> None:
    """With --json standard output is one line, and the numbers in it are those of a run without losses."""
    (line,) = runs.printed.stdout.splitlines()
    numbers = json.loads(line)
    assert tuple(numbers) == JSON_FIELDS
    assert (numbers["rollouts"], numbers["lost"], numbers["doubled"]) == (ROLLOUTS, 0, 0)
    assert numbers["attempts"] == ROLLOUTS + numbers["retries"]
    assert (numbers["complete_captures"], numbers["incomplete_captures"]) == (2 * ROLLOUTS, 0)
    assert numbers["model_calls"] >= numbers["complete_captures"]
    assert numbers["spans"] >= 3 * ROLLOUTS
    assert numbers["tokens"] > numbers["model_calls"]
    assert numbers["seconds"] > 0


def test_a_reward_that_did_not_climb_is_a_broken_promise(runs: Runs) -> None:
    """After too few batches the exit code is 1, and all that standard error says is which promise did not hold."""
    last = json.loads(runs.printed.stdout)["last_reward"]
    assert runs.printed.status == 1
    assert runs.printed.stderr == f"broken promise: the reward of the last batch, {last:.2f}, is below 0.9\n"


def test_the_curve_is_drawn_in_the_format_of_its_name(runs: Runs) -> None:
    """A picture whose name ends in .svg is an SVG."""
    assert "<svg" in runs.curve.read_text()


def test_a_killed_runner_costs_no_rollout(runs: Runs) -> None:
    """What the killed runner held is noted as lost, repeated by another in time, and finished once."""
    summary, (killing,) = runs.outcome.summary, runs.recorder.killings
    assert summary.killing == killing
    assert killing.worker_id == "runner-1"
    assert [recovery.lost.rollout_id for recovery in summary.recoveries] == list(killing.rollout_ids)
    for recovery in summary.recoveries:
        assert (recovery.lost.worker_id, recovery.lost.status) == ("runner-1", "unresponsive")
        assert recovery.reason == "worker_lost"
        assert recovery.retried
        assert (recovery.retried.worker_id, recovery.retried.status) == ("runner-2", "succeeded")
    assert summary.retries >= len(killing.rollout_ids) >= 1
    (broken,) = summary.broken_promises(LEASE_S)
    assert broken.startswith("the reward of the last batch")
    assert {
        "killed_runner": "runner-1",
        "killed_rollouts": len(killing.rollout_ids),
    }.items() <= summary.as_json().items()


async def test_neither_streams_nor_a_kill_change_what_is_learned(runs: Runs) -> None:
    """A seed gives equal triplets apart from ids with and without streaming, and with and without a lost runner."""
    plain, killed = await runs.rollouts(PLAIN), await runs.rollouts(KILLED)
    assert len(plain) == ROLLOUTS
    assert substance(plain) == substance(killed)


async def test_the_gradients_used_follow_from_the_store(runs: Runs) -> None:
    """A fresh learner with nothing but the spans in the store finds, bit for bit, each gradient that was used."""
    rollouts = await runs.rollouts(KILLED)
    learner = Learner(Policy.initial(Tokenizer.load(), SEED))
    for number, used in enumerate(runs.recorder.steps):
        step = learner.step({one: found for one, found in rollouts.items() if one.startswith(f"batch-{number:03}")})
        assert np.array_equal(step.gradient, used.gradient)
        assert (step.mean_reward, step.version) == (used.mean_reward, used.version)
    assert len(runs.recorder.steps) == BATCHES
    assert any(step.gradient.any() for step in runs.recorder.steps)


def test_every_part_is_told_when_it_is_ready(runs: Runs) -> None:
    """A watcher hears of each process once."""
    assert sorted(runs.recorder.parts) == ["aggregate", "policy", "proxy", "runner-1", "runner-2"]


async def test_a_namespace_with_rollouts_is_refused(store: StreamStore, settings: Settings, tmp_path: Path) -> None:
    """The demo does not mix its records with others: the error names the namespace and the way out."""
    await store.enqueue_rollout({"of": "somebody else"})
    with pytest.raises(ConfigError, match=rf"{settings.namespace}.*choose another with --namespace"):
        await play(DemoOptions(settings=settings), settings, tmp_path, Recorder())
