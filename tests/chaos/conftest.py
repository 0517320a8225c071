"""A server of the test's own that loses nothing it has acknowledged, a store on it, and a crew of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl_streams.config import Settings, load_settings
from tests.support.servers import Server, Servers

LEASE_S = 1.0  # how soon a killed runner is noticed; a watchdog on a busy machine looks several times in it
MANY_DELIVERIES = 50  # no rollout is given up because its runners were killed often


@pytest.fixture
def server(servers: Servers) -> Server:
    """A server that has written to its disk what it has answered."""
    return servers.start(config={"appendfsync": "always"})


@pytest.fixture
def settings(server: Server, namespace: str, tmp_path: Path) -> Settings:
    """Settings with a short lease, and patience with rollouts that lose their runner."""
    return load_settings(
        redis_url=server.url,
        namespace=namespace,
        data_dir=tmp_path / "data",
        lease_seconds=LEASE_S,
        max_deliveries=MANY_DELIVERIES,
    )
