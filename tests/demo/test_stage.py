"""The processes of the demo: started together, watched, and ended together."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import NoReturn

import pytest

from agl_streams.config import Settings
from agl_streams.demo.options import DemoOptions
from agl_streams.demo.stage import PartDied, Stage
from agl_streams.demo.training import TrainingFailed
from tests.demo.stages import send


async def forever() -> NoReturn:
    """Work without an end."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")


async def without_an_aggregator(stage: Stage) -> None:
    """Open the stage and kill its aggregator while there is work."""
    async with stage:
        pid = stage.processes["aggregate"].pid
        assert pid
        send(pid, signal.SIGKILL)
        await stage.while_alive(forever())


async def test_a_death_ends_the_work_and_everything_else(settings: Settings, tmp_path: Path) -> None:
    """When the aggregator is killed the work is cancelled, the others are stopped, and the error has its log."""
    stage = Stage(DemoOptions(settings=settings, runners=1), settings, tmp_path)
    with pytest.raises(PartDied, match=r"^aggregate was killed by SIGKILL in the middle of the demo") as caught:
        await without_an_aggregator(stage)
    (note,) = caught.value.__notes__
    assert note.startswith("the log of aggregate ends:\n")
    assert "aggregator_started" in note
    statuses = {name: process.exitcode for name, process in stage.processes.items()}
    assert statuses == {"policy": 0, "runner-1": 0, "aggregate": -signal.SIGKILL, "proxy": 0}


@pytest.mark.usefixtures("store")  # makes the namespace, of one shard
async def test_a_part_that_cannot_start_is_named(settings: Settings, tmp_path: Path) -> None:
    """When a part refuses its settings the stage does not open, nothing is left running, and the log tells why."""
    wrong = settings.model_copy(update={"shards": 2})
    stage = Stage(DemoOptions(settings=wrong, runners=1), wrong, tmp_path)
    with pytest.raises(PartDied, match="ended with status 1") as caught:
        await stage.__aenter__()
    (note,) = caught.value.__notes__
    assert "WrongShardCount" in note
    assert not [name for name, process in stage.processes.items() if process.is_alive()]


async def test_work_gives_its_result_or_its_error(settings: Settings, tmp_path: Path) -> None:
    """While nothing dies, what the work returns or raises comes out."""
    stage = Stage(DemoOptions(settings=settings), settings, tmp_path)

    async def succeed() -> str:
        return "done"

    async def fail() -> None:
        raise TrainingFailed("on purpose")

    assert await stage.while_alive(succeed()) == "done"
    with pytest.raises(TrainingFailed, match="on purpose"):
        await stage.while_alive(fail())
