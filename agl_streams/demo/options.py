"""What the demo can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agl_streams.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of ``agl-streams demo``.

    Attributes:
        settings: with ``redis_url`` None the demo uses a throw-away engine.
        runners: runner processes.
        seed: of the policy, of the order of the problems and of all sampling.
        stream: whether the agent calls the model with server-sent events.
        kill_a_runner: SIGKILL a runner that holds an attempt, in the middle of the run.
        json_output: print one JSON object instead of tables.
        picture: where the reward curve is drawn.
        batches, batch_size: gradient steps, and rollouts per step.
    """

    settings: Settings
    runners: int = 3
    seed: int = 0
    stream: bool = True
    kill_a_runner: bool = False
    json_output: bool = False
    picture: Path = Path("agl-streams-demo.png")
    batches: int = 28
    batch_size: int = 64
