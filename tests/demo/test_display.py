"""What is drawn: the curve of blocks, the tables, and the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams.demo.display import AXIS_WIDTH, Screen, curve, draw
from agl_streams.demo.learner import Step
from agl_streams.errors import ConfigError
from tests.demo.test_summary import GOOD, RECOVERED, after_a_kill

TERMINAL = 80


def columns(rewards: list[float], batches: int, width: int = TERMINAL) -> list[str]:
    """The columns of a curve that are not the axis, from top to bottom."""
    *rows, _axis, _labels = curve(rewards, batches, width).plain.splitlines()
    longest = max(map(len, rows))
    cells = [row.ljust(longest)[AXIS_WIDTH:] for row in rows]
    return ["".join(cell) for cell in zip(*cells, strict=True)]


def test_a_column_is_as_high_as_its_reward() -> None:
    """0 is empty, 1 is full, and between them a tenth of the reward is a row."""
    empty, half, full = columns([0.0, 0.5, 1.0], 3)[::3]
    assert empty == " " * 10
    assert half == " " * 5 + "█" * 5
    assert full == "█" * 10


def test_eighths_of_a_row_are_seen() -> None:
    """The top of a column is a block of the nearest eighth."""
    (column,) = columns([0.25], 1, AXIS_WIDTH + 1)
    assert column == " " * 7 + "▄██"


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=300), st.integers(0, 50), st.integers(20, 200))
def test_a_curve_fits_its_width(rewards: list[float], more: int, width: int) -> None:
    """Whatever the rewards and however many batches, no line is wider than the terminal allows."""
    assert max(map(len, curve(rewards, len(rewards) + more, width).plain.splitlines())) <= width


def test_the_newest_batches_are_shown_when_there_are_too_many() -> None:
    """A curve that has no room for all of its batches loses the oldest, and its axis says so."""
    plain = curve([0.0] * 90 + [1.0] * 10, 100, AXIS_WIDTH + 50).plain
    assert plain.splitlines()[0].endswith("█" * 10)
    assert plain.splitlines()[-1].split() == ["batch", "51", "100"]


def test_the_tables_fit_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns no line of the closing tables is broken, and each number is on the line of its name."""
    monkeypatch.setenv("COLUMNS", str(TERMINAL))
    Screen(20, 64, silent=False).close(after_a_kill(RECOVERED), [])
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["complete", "captures", "200", "of", "200", "(100%)"] in lines
    assert ["batch-001-000", "runner-1", "worker_lost", "runner-2", "3.1", "s", "succeeded"] in lines
    assert printed.err == ""


def test_without_a_terminal_each_batch_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Progress that goes to a file is one line for each batch, without control characters."""
    with Screen(20, 64, silent=False) as screen:
        screen.ready("proxy")
        screen.step(Step(0.25, np.zeros(1), 2), 10.0)
    assert capsys.readouterr().out == "batch 1/20 · mean reward 0.25 · policy version 2\n"


def test_a_silent_screen_leaves_standard_output_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With JSON on standard output the rest is silent, but for what went wrong, which goes to standard error."""
    with Screen(20, 64, silent=True) as screen:
        screen.step(Step(0.25, np.zeros(1), 2), 10.0)
    screen.close(GOOD, ["the sky [fell]"])
    screen.left(tmp_path, "n")
    screen.failed(["the log of proxy ends:\n{}"])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "broken promise: the sky [fell]\nthe log of proxy ends:\n{}\n"


def test_a_picture_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    draw([0.1, 0.9], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ConfigError, match=r"folder\.png cannot be written"):
        draw([0.1, 0.9], tmp_path / "folder.png")
