"""A part stops when asked, and is cut short only when asked twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

PROGRAM = """
import asyncio
from agl_streams.config import load_settings
from agl_streams.process import run_until_stopped
from agl_streams.telemetry import configure_logging

configure_logging(load_settings())

async def main(stop):
    print("ready", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    {after}
    print("drained", flush=True)

run_until_stopped(main)
print("returned", flush=True)
"""


@contextmanager
def started(after: str) -> Generator[subprocess.Popen[str]]:
    """A process of the program above that has said `ready`; it is gone when the block is left."""
    code = PROGRAM.format(after=after)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        try:
            assert read_line(process) == "ready"
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_a_part_finish(number: signal.Signals) -> None:
    """The first signal asks the part to stop, and the process ends without an error once it has."""
    with started(after="pass") as process:
        process.send_signal(number)
        out, _ = process.communicate()
    assert out.split() == ["stopping", "drained", "returned"]
    assert process.returncode == 0


def test_a_second_signal_cuts_a_part_short() -> None:
    """A part that does not come to an end is cancelled by the second signal."""
    with started(after="await asyncio.Event().wait()") as process:
        process.send_signal(signal.SIGTERM)
        assert read_line(process) == "stopping"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
    assert out == ""
    assert "KeyboardInterrupt" in err
    assert process.returncode != 0


def test_a_fault_of_a_part_is_raised() -> None:
    """An exception of the part ends the process with that exception."""
    with started(after="raise RuntimeError('broken')") as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
    assert out.split() == ["stopping"]
    assert "RuntimeError: broken" in err
    assert process.returncode == 1
