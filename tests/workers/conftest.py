"""What tests of the processes need: a short lease, and a watchdog and an aggregator that run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.store import StreamStore
from agl_workers.watchdog import Watchdog
from tests.workers.support import LEASE_S, running


@pytest.fixture
def settings(redis_url: str, namespace: str, tmp_path: Path) -> Settings:
    """Settings with a lease that a test can wait for; logs as JSON, so that a test can read them."""
    return load_settings(
        redis_url=redis_url,
        namespace=namespace,
        data_dir=tmp_path / "data",
        lease_seconds=LEASE_S,
        log_format="json",
        log_level="DEBUG",
    )


@pytest.fixture
async def watchdog(store: StreamStore) -> AsyncGenerator[Watchdog]:
    """A watchdog that has had its first look, so that it gives no grace, and goes on looking."""
    watchdog = Watchdog(store, 0)
    await watchdog.run_once()
    async with running(watchdog.run):
        yield watchdog
