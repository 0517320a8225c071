"""A demo that does not come to its end, interrupted, killed, or without one of its parts, leaves nothing behind."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.demo.stages import PATIENCE_S, all_gone, descendants, events, pid_of, send, start_endless
from tests.support.processes import ProcessGroup

# Engine, its guardian, the guardian's watcher, resource tracker, policy server, runner, aggregator and proxy.
FEWEST_PROCESSES = 7


def test_an_interrupted_demo_ends_in_order(processes: ProcessGroup, tmp_path: Path) -> None:
    """Ctrl-C stops all parts and the engine without a traceback, removes the folder, and the exit code is 130."""
    demo = start_endless(processes, tmp_path)
    below = descendants(demo.pid)
    demo.signal(signal.SIGINT)
    assert demo.wait(PATIENCE_S) == 130
    all_gone(below)
    assert "Traceback" not in demo.output
    assert "stopped before its end" in demo.output
    assert [event for event in events(demo) if event["event"] in ("child_killed", "engine_stopped")] == [
        events(demo)[-1]
    ]
    assert list(tmp_path.glob("agl-demo-*")) == []


def test_nothing_survives_a_killed_demo(processes: ProcessGroup, tmp_path: Path) -> None:
    """After SIGKILL of the demo its engine and every process that it started come to their end by themselves."""
    demo = start_endless(processes, tmp_path)
    below = descendants(demo.pid)
    assert len(below) >= FEWEST_PROCESSES
    demo.kill()
    all_gone(below)


def test_a_part_that_dies_is_named(processes: ProcessGroup, tmp_path: Path) -> None:
    """When the proxy is killed the demo ends with exit code 2, one line that names it, and the end of its log."""
    demo = start_endless(processes, tmp_path)
    below = descendants(demo.pid)
    send(pid_of(demo, "proxy"), signal.SIGKILL)
    assert demo.wait(PATIENCE_S) == 2
    all_gone(below)
    assert demo.output.splitlines()[-1] == "error: proxy was killed by SIGKILL in the middle of the demo"
    _, _, log = demo.output.partition("the log of proxy ends:")
    assert "proxy_listening" in log
    assert "Traceback" not in demo.output
