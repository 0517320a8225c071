"""The parts of `bench store`, with hardly anything to do: that each measures and says what it promises to."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from agl_streams.bench.expiry import expiry
from agl_streams.bench.growth import growth
from agl_streams.bench.memory import memory, model_call
from agl_streams.bench.operations import OPERATIONS
from agl_streams.bench.report import Row, show
from agl_streams.bench.runners import runners
from agl_streams.bench.waiters import waiting
from agl_streams.bench.work import opened
from agl_streams.config import Settings
from agl_streams.semconv import is_model_call
from agl_streams.store import StreamStore


def targets(rows: Sequence[Row]) -> list[tuple[str, float | None]]:
    """Ids and targets; each row has a value that was measured."""
    assert all(row.value is not None and row.value > 0 for row in rows), rows
    return [(row.id, row.target) for row in rows]


async def test_growth_is_measured_for_each_operation(settings: Settings) -> None:
    """P4 has a row for each operation, with its target."""
    rows = await growth(settings, rollouts=300, pairs=1, calls=2)
    assert targets(rows) == [("P4", 1.2)] * len(OPERATIONS)
    assert [row.what.partition(":")[0] for row in rows] == [operation.name for operation in OPERATIONS]
    assert all("300 finished rollouts" in row.what for row in rows)


async def test_memory_of_spans_is_measured(settings: Settings) -> None:
    """P5 is told for a plain span and for a model call."""
    assert targets(await memory(settings, attempts=5)) == [("P5", 2.0), ("P5", 6.0)]


async def test_the_measured_model_call_is_one(store: StreamStore) -> None:
    """What stands for a model call is counted as one with its tokens."""
    attempted = await opened(store)
    span = model_call(attempted)
    assert is_model_call(span)
    await store.add_span(span, assign_sequence=True)
    await store.settle()
    sums = await store.rollout_sums(attempted.rollout_id)
    assert (sums.model_calls, sums.prompt_tokens, sums.completion_tokens, sums.incomplete) == (1, 100, 200, 0)


async def test_waiters_are_measured(settings: Settings) -> None:
    """P6 tells how soon a waiter goes on, and that waiting costs the server no commands."""
    rows = await waiting(settings, waiters=20, finishes=10, window_s=0)
    assert targets(rows) == [("P6", 1), ("P6", 5), ("P6", 1.1)]
    assert "fcall 10" in rows[2].detail


async def test_the_idle_watchdog_is_measured(settings: Settings) -> None:
    """P8 tells the server's time of an expire that finds nothing due."""
    assert targets(await expiry(settings, attempts=50, calls=2)) == [("P8", 20)]


async def test_runners_are_measured_step_by_step(settings: Settings) -> None:
    """P14 has the throughput of each number of runners, and the least after the best."""
    rows = await runners(settings, steps=(1, 3), rounds=1, window_s=0.3)
    assert targets(rows) == [("-", None), ("-", None), ("P14", 0.9)]
    assert [row.what for row in rows[:2]] == ["rollouts/s, 1 runners", "rollouts/s, 3 runners"]


def test_rows_are_printed_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    """With JSON a list of rows is printed, and a missed target makes the exit code 1."""
    rows = [Row("P1", "fast", 2.0, 1.0), Row("P2", "small", 2.0, 1.0, "low"), Row("P3", "not here", None, 1.0)]
    assert show("title", rows, json_output=True) == 1
    printed = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["value"], row["target"], row["ok"]) for row in printed] == [
        ("P1", 2.0, 1.0, True),
        ("P2", 2.0, 1.0, False),
        ("P3", None, 1.0, True),
    ]


def test_rows_are_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """A table says of each target whether it is met; what could not be measured misses none."""
    assert show("title", [Row("P1", "fast", 2.0, 1.0), Row("P2", "not here", None, 1.0)], json_output=False) == 0
    printed = capsys.readouterr().out
    assert "met" in printed
    assert "MISSED" not in printed
