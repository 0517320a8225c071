"""What the demo can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agl_streams.config import Settings
from agl_streams.errors import ConfigError

# So many take every seed that was tried from 0.3 above 0.9 with a margin; see the learner's constants.
BATCHES: Final = 20
BATCH_SIZE: Final = 64
FEWEST_EPISODES: Final = 2  # a reward is judged by those of the others in its batch


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of ``agl-streams demo``.

    Attributes:
        settings: with ``redis_url`` None the demo uses a throw-away engine, with the namespace ``default`` a new one.
        runners: runner processes.
        seed: of the policy, of the order of the problems and of all sampling.
        stream: whether the agent calls the model with server-sent events.
        kill_a_runner: SIGKILL a runner that holds an attempt, in the middle of the run.
        json_output: print one JSON object instead of tables.
        picture: where the reward curve is drawn; the ending of its name chooses the format.
        batches, batch_size: gradient steps, and rollouts per step.

    Raises:
        ConfigError: the options do not go together, or the picture's folder does not exist.
    """

    settings: Settings
    runners: int = 3
    seed: int = 0
    stream: bool = True
    kill_a_runner: bool = False
    json_output: bool = False
    picture: Path = Path("agl-streams-demo.png")
    batches: int = BATCHES
    batch_size: int = BATCH_SIZE

    def __post_init__(self) -> None:
        """Refuse what could not be run to its end."""
        if self.batch_size < FEWEST_EPISODES:
            raise ConfigError(f"--batch-size {self.batch_size}: a batch needs at least {FEWEST_EPISODES} rollouts")
        if self.batches < 1 + self.kill_a_runner:
            raise ConfigError(f"--batches {self.batches}: at least {1 + self.kill_a_runner} are needed")
        if self.kill_a_runner and self.runners == 1:
            raise ConfigError("--kill-a-runner needs --runners 2 or more: one has to be left for the work")
        if not self.picture.absolute().parent.is_dir():
            raise ConfigError(f"--picture {self.picture}: there is no folder {self.picture.absolute().parent}")
