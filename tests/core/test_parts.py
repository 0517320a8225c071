"""Parts as child processes: what they are given, where they write, and that none outlives what started it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agl_streams.config import load_settings
from agl_streams.errors import ConfigError
from agl_streams.parts import Child, how_it_ended, load_part, stop_children
from tests.core import parts_targets as targets
from tests.support.processes import is_alive
from tests.support.waiting import PATIENCE_S, until_blocking


def child_of(target: Callable[..., None], directory: Path, **more: Any) -> Child:
    """A child that runs a function of the targets and writes to a log there."""
    return Child(
        name=target.__name__,
        target=f"{targets.__name__}:{target.__name__}",
        settings=load_settings(namespace="of-a-child", log_format="json"),
        log=directory / "child.log",
        **more,
    )


def written(path: Path) -> str:
    """Wait for a file to be written, and return what it says."""
    return until_blocking(lambda: path.read_text() if path.exists() else "", what=f"{path.name} to be written")


def test_a_part_is_found_by_its_name() -> None:
    """The parts of the installed packages are functions; another name is an error that says what to do."""
    assert all(callable(load_part(name)) for name in ("aggregate", "proxy", "worker"))
    with pytest.raises(ConfigError, match=r"no installed package offers the part 'bakery' .*pip install"):
        load_part("bakery")


def test_a_child_gets_settings_and_arguments(tmp_path: Path) -> None:
    """The target is called with both, in a process group of its own, and all its output goes to the log."""
    child = child_of(targets.tell, tmp_path, arguments={"word": "hello", "where": tmp_path / "told"})
    process = child.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    assert how_it_ended(process) == "ended with status 0"
    assert (tmp_path / "told").read_text() == "hello of-a-child True"
    log = (tmp_path / "child.log").read_text()
    assert [line for line in ("to standard output", "to standard error", '"event":"an_event"') if line not in log] == []


def test_a_child_that_fails_tells_why(tmp_path: Path) -> None:
    """The traceback is in the log, and the status is 1."""
    process = child_of(targets.fail, tmp_path).start()
    process.join(PATIENCE_S)
    assert how_it_ended(process) == "ended with status 1"
    assert "RuntimeError: on purpose" in (tmp_path / "child.log").read_text()


def test_children_are_stopped_together_and_those_that_hang_are_killed(tmp_path: Path) -> None:
    """One that heeds SIGTERM ends by it, one that does not by SIGKILL; one that has ended is no trouble."""
    paths = {target: tmp_path / target.__name__ for target in (targets.wait, targets.hang)}
    running = [
        (child := child_of(target, tmp_path, arguments={"where": path}, longest_stop_s=0.5), child.start())
        for target, path in paths.items()
    ]
    ended = child_of(targets.fail, tmp_path)
    over = ended.start()
    over.join(PATIENCE_S)
    for path in paths.values():
        written(path)
    stop_children([*running, (ended, over)])
    assert [how_it_ended(process) for _, process in running] == ["was killed by SIGTERM", "was killed by SIGKILL"]
    assert how_it_ended(over) == "ended with status 1"


def test_children_end_with_their_parent_however_it_ends(tmp_path: Path) -> None:
    """When the parent is killed its children end: one by SIGTERM, one that is deaf to it by SIGKILL."""
    parent = child_of(targets.family, tmp_path, arguments={"where": tmp_path}).start()
    pids = [int(written(tmp_path / name)) for name in ("willing", "deaf")]
    parent.kill()
    parent.join(PATIENCE_S)
    assert parent.exitcode == -signal.SIGKILL
    until_blocking(lambda: not [pid for pid in pids if is_alive(pid)], what="the end of the orphans")
