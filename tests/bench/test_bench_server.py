"""The parts of `bench server`, with hardly anything to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agl_streams.bench.routes import routes
from agl_streams.bench.scratch import scratch_store
from agl_streams.bench.served import serving
from agl_streams.bench.wrk import two_over_one
from agl_streams.config import Settings
from agl_streams.store import StreamStore


async def test_each_route_is_measured(settings: Settings) -> None:
    """Each route is asked and answers; what came of it is in the store."""
    async with scratch_store(settings) as store, serving(store, 1) as served:
        rows = await routes(served, requests=20, exports=2)
        statistics = await store.statistics()
        finished = await store.query_rollouts(status_in=["succeeded"])
    assert [row.what.partition(":")[0].partition(",")[0] for row in rows] == [
        "health",
        "enqueue",
        "dequeue",
        "add span of 1 KB",
        "get rollout",
        "finish attempt",
        "OTLP",
    ]
    assert all(row.value and "processor time each" in row.detail for row in rows)
    assert statistics["total_rollouts"] == 40  # as many opened for their attempts as enqueued
    assert statistics["total_attempts"] == 40
    assert statistics["total_spans"] == 20 + 2 * 100
    assert len(finished) == 20


async def test_a_missing_load_generator_is_told(store: StreamStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without wrk the row says how to get it, and no target is missed."""
    monkeypatch.setenv("PATH", "")
    (row,) = await two_over_one(store, pairs=1)
    assert "apt-get install wrk" in row.what
    assert (row.id, row.value, row.ok) == ("P9", None, True)


@pytest.mark.skipif(
    shutil.which("wrk") is None or not Path("/proc").exists(),
    reason="needs wrk, and processor times in /proc",
)
async def test_a_second_process_is_measured(settings: Settings) -> None:
    """Both servers are under load from wrk; the figures tell each process apart, and every request was served."""
    async with scratch_store(settings) as store:
        (row,) = await two_over_one(store, pairs=1, seconds=1, most=1)
        enqueued = (await store.statistics())["total_rollouts"]
    assert (row.id, row.target) == ("P9", 1.25)
    assert " + " in row.detail.partition(" against ")[0]
    assert enqueued > 100
