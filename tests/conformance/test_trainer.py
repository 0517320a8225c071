"""Agentlightning's trainer on our server, run as its users would run it."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import HERE, free_port
from tests.conformance.train_baseline import TRAINING_TASKS, VALIDATION_TASKS
from tests.support.processes import Process, ProcessGroup
from tests.support.waiting import until_blocking

START_S = 60.0  # agentlightning takes ten seconds to import, more on a busy machine
RUN_S = 110.0
TASKS = TRAINING_TASKS + VALIDATION_TASKS
TOTALS = {"total_rollouts": TASKS, "total_attempts": TASKS, "total_spans": 4 * TASKS, "total_resources": 1}


@dataclass(frozen=True)
class Training:
    """What a run has left.

    Attributes:
        whole_s: of `Trainer.fit`. A runner whose dequeue finds nothing sleeps for 4.5 to 5.5 s. On agentlightning's own
            server it is chance whether its first one comes before the first enqueue; ours holds it for a moment.
        work_s: from the beginning of the first attempt to the end of the last rollout, by the server's own times.
        workers: how many runners had a part in it. Also chance: one may sleep while the other does everything.
        counted: the server's statistics.
    """

    whole_s: float
    work_s: float
    workers: int
    counted: Mapping[str, Any]

    def told(self) -> str:
        """For a person."""
        return f"{self.work_s:.2f} s of work by {self.workers} runners ({self.whole_s:.2f} s with the client's polls)"


def get(url: str, path: str) -> Any:
    """A JSON answer; None while nobody listens."""
    try:
        with urllib.request.urlopen(url + path) as answer:
            return json.load(answer)
    except OSError:
        return None


def trained(processes: ProcessGroup, server: Process, url: str) -> Training:
    """Train on a server, which ends then."""
    until_blocking(lambda: get(url, "/v1/agl/health"), timeout_s=START_S, what=f"{server.name} to listen")
    training = processes.start(sys.executable, str(HERE / "train_baseline.py"), url, name=f"training on {server.name}")
    assert training.wait(RUN_S) == 0, training.output
    (seconds,) = re.findall(r"FIT DONE ([\d.]+)", training.log.read_text())
    statistics = get(url, "/v1/agl/statistics")
    rollouts = get(url, "/v1/agl/rollouts")["items"]
    assert {rollout["status"] for rollout in rollouts} == {"succeeded"}
    assert server.running
    server.terminate()
    attempts = [rollout["attempt"] for rollout in rollouts]
    work_s = max(rollout["end_time"] for rollout in rollouts) - min(attempt["start_time"] for attempt in attempts)
    return Training(float(seconds), work_s, len({attempt["worker_id"] for attempt in attempts}), statistics)


@pytest.mark.timeout(4 * RUN_S)
def test_its_trainer_trains_on_our_server(
    processes: ProcessGroup, our_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training run leaves on our server just what it leaves on agentlightning's own, nothing lost or doubled."""
    port = free_port()
    serve = ["-m", "agl_streams.cli", "serve", "--port", str(port), "--data-dir", str(tmp_path / "data")]
    ours = processes.start(our_python, *serve, name="our server")
    here = trained(processes, ours, f"http://127.0.0.1:{port}")
    assert {name: here.counted[name] for name in TOTALS} == TOTALS

    port = free_port()
    program = Path(sys.executable).with_name("agl")
    theirs = processes.start(str(program), "store", "--host", "127.0.0.1", "--port", str(port), name="their server")
    there = trained(processes, theirs, f"http://127.0.0.1:{port}")
    assert {name: there.counted[name] for name in TOTALS} == TOTALS
    with capsys.disabled():
        print(f"\ntraining on our server: {here.told()}; on agentlightning's own: {there.told()}")
