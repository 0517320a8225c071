"""TLS, and a user that may do just what the documentation says, all the way through the store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agl_streams.config import load_settings
from agl_streams.store import StreamStore
from tests.support.certificates import self_signed
from tests.support.processes import ROOT
from tests.support.servers import REDIS_7_0, Servers, free_port
from tests.support.topologies import HOST, SLOTS, pair
from tests.topology.support import whole_way

OPERATIONS = ROOT / "docs" / "operations.md"


def documented_user() -> list[str]:
    """The rules of the user in the documentation."""
    (line,) = re.findall(r"^ACL SETUSER agl (.+)$", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE)
    return line.split()


def tls(directory: Path, port: int) -> dict[str, str]:
    """The configuration of a server that speaks TLS on a port."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    self_signed(certificate, key)
    files = {"tls-cert-file": str(certificate), "tls-key-file": str(key), "tls-ca-cert-file": str(certificate)}
    return {**files, "tls-port": str(port), "tls-auth-clients": "no"}


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
async def test_the_whole_way_over_tls_as_the_documented_user(servers: Servers, tmp_path: Path, scheme: str) -> None:
    """Everything that runners, learners and the watchdog do works over TLS, and the server denies the user nothing."""
    port = free_port()
    config, rules = tls(tmp_path, port), documented_user()
    if scheme == "rediss+cluster":
        config |= {"tls-cluster": "yes", "cluster-enabled": "yes", "cluster-port": str(free_port())}
        rules.append("+cluster|slots")
    server = servers.start(REDIS_7_0, config, tcp=True)
    if scheme == "rediss+cluster":
        server.execute("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    server.execute("ACL", "SETUSER", "agl", *rules)
    url = f"{scheme}://agl:password@{HOST}:{port}?ssl_ca_certs={config['tls-ca-cert-file']}"
    async with await StreamStore.connect(settings=load_settings(redis_url=url, shards=2, namespace="t")) as store:
        await whole_way(store)
    assert server.execute("ACL", "LOG") == []


async def test_the_documented_user_may_wait_for_replicas(servers: Servers) -> None:
    """With AGL_MIN_REPLICAS the documented user needs no further permission."""
    primary, _ = pair(servers)
    primary.execute("ACL", "SETUSER", "agl", *documented_user())
    url = primary.url.replace("redis://", "redis://agl:password@")
    settings = load_settings(redis_url=url, namespace="t", min_replicas=1, replica_timeout_seconds=10)
    async with await StreamStore.connect(settings=settings) as store:
        await whole_way(store)
    assert primary.execute("ACL", "LOG") == []
