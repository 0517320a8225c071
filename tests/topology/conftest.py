"""A cluster that the tests of a file share, whole again before each, and stores on it."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from agl_streams.config import Settings, load_settings
from tests.support.servers import Servers
from tests.support.topologies import PRIMARIES, ClusterOfServers

SHARDS = 4
LEASE_S = 1.0  # how soon a lost runner is noticed
MANY_DELIVERIES = 50  # no rollout is given up because servers were killed often


@pytest.fixture(scope="module")
def six_servers() -> Generator[ClusterOfServers]:
    """Three primaries with a replica each."""
    servers = Servers()
    yield ClusterOfServers(servers)
    servers.close()


@pytest.fixture
def cluster(six_servers: ClusterOfServers) -> ClusterOfServers:
    """The cluster, every node of it up and content."""
    six_servers.start_missing()
    six_servers.wait_until_whole()
    return six_servers


@pytest.fixture
def namespace(cluster: ClusterOfServers) -> str:
    """A fresh namespace whose shards are on all primaries."""
    while True:
        name = f"t-{uuid.uuid4().hex[:12]}"
        if len({cluster.primary_of(name, shard).port for shard in range(SHARDS)}) == PRIMARIES:
            return name


@pytest.fixture
def settings(cluster: ClusterOfServers, namespace: str, tmp_path: Path) -> Settings:
    """Settings of a namespace of several shards on the cluster."""
    return load_settings(
        redis_url=cluster.url,
        namespace=namespace,
        shards=SHARDS,
        data_dir=tmp_path / "data",
        lease_seconds=LEASE_S,
        max_deliveries=MANY_DELIVERIES,
    )
