"""Options of the demo that could not be run to the end are refused at its beginning."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agl_streams.cli.demo import demo
from agl_streams.config import load_settings
from agl_streams.demo.display import check_picture
from agl_streams.demo.options import DemoOptions
from agl_streams.errors import ConfigError


def test_the_command_line_has_the_same_defaults() -> None:
    """What is not asked for on the command line is what the options have by themselves."""
    flags = {name: flag.default for name, flag in inspect.signature(demo).parameters.items()}
    shared = {field.name: field.default for field in dataclasses.fields(DemoOptions) if field.name in flags}
    assert len(shared) == len(dataclasses.fields(DemoOptions)) - 1  # all but the settings
    assert {name: flags[name] for name in shared} == shared


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch_size": 1}, "--batch-size 1: a batch needs at least 2"),
        ({"batches": 0}, "--batches 0: at least 1"),
        ({"batches": 1, "kill_a_runner": True}, "--batches 1: at least 2"),
        ({"runners": 1, "kill_a_runner": True}, "--runners 2 or more"),
        ({"picture": Path("no/such/folder/curve.png")}, "there is no folder .*no/such/folder"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], told: str) -> None:
    """The error names the flag and its value."""
    with pytest.raises(ConfigError, match=told):
        DemoOptions(settings=load_settings(), **options)


def test_an_unknown_picture_format_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """The error lists the formats there are, and the command line ends with it at once."""
    check_picture(Path("curve.PNG"))
    with pytest.raises(ConfigError, match=r"curve\.txt: the name must end in one of .*png"):
        check_picture(Path("curve.txt"))
    argv = [sys.executable, "-m", "agl_streams.cli", "demo", "--picture", str(tmp_path / "curve")]
    failed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: --picture")
