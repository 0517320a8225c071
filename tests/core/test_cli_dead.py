"""Rollouts that were given up, from a terminal: seen, put on the queue again, dropped."""

from __future__ import annotations

import pytest

from agl_streams.config import Settings
from agl_streams.store import StreamStore
from tests.support.command_line import Shell


@pytest.fixture
def shell(settings: Settings) -> Shell:
    """Commands on the namespace of the test."""
    return Shell(settings)


@pytest.fixture
async def dead(store: StreamStore) -> list[str]:
    """Three rollouts that are given up: handed over and not begun, when no second delivery is allowed."""
    names = ["p1", "p2", "p3"]
    for name in names:
        await store.enqueue_rollout({"poison": name}, rollout_id=name)
    functions = store.functions(0)
    await store.connection.execute("XREADGROUP", "GROUP", "runners", "reader", "STREAMS", functions.keys.tasks, ">")
    await functions.expire("30000000", 0, 1)
    await functions.leave("reader")
    return names


async def status(store: StreamStore, rollout_id: str) -> str:
    rollout = await store.get_rollout_by_id(rollout_id)
    assert rollout is not None
    return rollout.status


async def test_they_are_listed_with_input_and_reason(shell: Shell, dead: list[str]) -> None:
    """A row has reason, deliveries and the beginning of the input; pages say what they leave out."""
    heading, *rows = shell.lines("dead", "ls")
    assert heading.split()[:3] == ["rollout", "reason", "deliveries"]
    assert [row.split()[:3] for row in rows] == [[name, "never_begun", "1"] for name in dead]
    assert rows[0].endswith('{"poison":"p1"}')
    assert [one["rollout"]["input"] for one in shell.json("dead", "ls", "--limit", "1", "--offset", "1")] == [
        {"poison": "p2"}
    ]
    assert "1 of 3" in shell.run("dead", "ls", "--limit", "1").stderr


async def test_one_is_shown(shell: Shell, dead: list[str]) -> None:
    """`dead show` and `show` tell that it was given up, and why."""
    assert "never_begun, after 1 deliveries" in "\n".join(shell.lines("dead", "show", "p1"))
    (document,) = shell.json("show", "p1")
    assert document["dead"]["reason"] == "never_begun"


async def test_they_are_put_on_the_queue_again(store: StreamStore, shell: Shell, dead: list[str]) -> None:
    """By id or all; what is no dead letter is told, stops nothing, and gives exit code 2."""
    assert shell.lines("dead", "requeue", "p2") == ["p2 requeuing"]
    again = shell.run("dead", "requeue", "p2", "p1")
    assert (again.returncode, again.stdout) == (2, "p1 requeuing\n")
    assert "'p2'" in again.stderr
    assert "never given up" in again.stderr
    assert [one["status"] for one in shell.json("dead", "requeue", "--all")] == ["requeuing"]
    assert shell.json("dead", "ls") == []
    assert {await status(store, name) for name in dead} == {"requeuing"}


async def test_they_are_dropped(store: StreamStore, shell: Shell, dead: list[str]) -> None:
    """They go off the list and stay failed."""
    assert shell.lines("dead", "drop", "p1", "p3") == ["p1 failed", "p3 failed"]
    assert [one["rollout_id"] for one in shell.json("dead", "ls")] == ["p2"]
    assert {await status(store, name) for name in dead} == {"failed"}


async def test_nothing_is_dealt_with_by_accident(shell: Shell, dead: list[str]) -> None:
    """Neither names nor --all, or both, is refused."""
    for arguments in (("requeue",), ("drop",), ("drop", "p1", "--all")):
        refused = shell.run("dead", *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--all" in refused.stderr
    assert len(shell.json("dead", "ls")) == len(dead)
