"""Agentlightning's trainer on our server, run as its users would run it."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Mapping
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
TOTALS = {
    "total_rollouts": TASKS,
    "total_attempts": TASKS,
    "total_spans": 4 * TASKS,
    "total_resources": 1,
    "total_workers": 2,
}


def get(url: str, path: str) -> Any:
    """A JSON answer; None while nobody listens."""
    try:
        with urllib.request.urlopen(url + path) as answer:
            return json.load(answer)
    except OSError:
        return None


def trained(processes: ProcessGroup, server: Process, url: str) -> tuple[float, Mapping[str, Any]]:
    """Train on a server: how long the run took, and what the server counts then."""
    until_blocking(lambda: get(url, "/v1/agl/health"), timeout_s=START_S, what=f"{server.name} to listen")
    training = processes.start(sys.executable, str(HERE / "train_baseline.py"), url, name=f"training on {server.name}")
    assert training.wait(RUN_S) == 0, training.output
    (seconds,) = re.findall(r"FIT DONE ([\d.]+)", training.log.read_text())
    statistics = get(url, "/v1/agl/statistics")
    states = {item["status"] for item in get(url, "/v1/agl/rollouts")["items"]}
    assert states == {"succeeded"}
    assert server.running
    server.terminate()
    return float(seconds), statistics


@pytest.mark.timeout(4 * RUN_S)
def test_its_trainer_trains_on_our_server(
    processes: ProcessGroup, our_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training run leaves on our server just what it leaves on agentlightning's own, nothing lost or doubled."""
    port = free_port()
    serve = ["-m", "agl_streams.cli", "serve", "--port", str(port), "--data-dir", str(tmp_path / "data")]
    ours = processes.start(our_python, *serve, name="our server")
    here, counted = trained(processes, ours, f"http://127.0.0.1:{port}")
    assert {name: counted[name] for name in TOTALS} == TOTALS

    port = free_port()
    program = Path(sys.executable).with_name("agl")
    theirs = processes.start(str(program), "store", "--host", "127.0.0.1", "--port", str(port), name="their server")
    there, counted = trained(processes, theirs, f"http://127.0.0.1:{port}")
    assert {name: counted[name] for name in TOTALS} == TOTALS
    with capsys.disabled():
        print(f"\ntraining took {here:.2f} s on our server, {there:.2f} s on agentlightning's own")
