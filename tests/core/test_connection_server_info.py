"""Which servers are accepted, judged by the INFO replies of real releases (shortened)."""

from __future__ import annotations

import pytest

from agl_streams import errors
from agl_streams.server_info import judge, parse_info, risks

PRIMARY = "role:master\r\nconnected_slaves:2\r\n"
REPLICA = "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n"
REDIS_6_2 = "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n"
REDIS_7_0 = "# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\nredis_mode:standalone\r\n"
REDIS_8 = "# Server\r\nredis_version:8.2.1\r\nredis_mode:standalone\r\n"
VALKEY_7_2 = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.8\r\nredis_mode:standalone\r\n"
VALKEY_9 = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:standalone\r\n"
KEYDB = "redis_version:6.3.4\r\nredis_mode:standalone\r\n"
NODE = "redis_version:7.0.15\r\nredis_mode:cluster\r\n"
SENTINEL = "redis_version:7.0.15\r\nredis_mode:sentinel\r\n"


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        (REDIS_7_0 + PRIMARY, "redis", (7, 0, 15)),
        (REDIS_8 + PRIMARY, "redis", (8, 2, 1)),
        (VALKEY_7_2 + PRIMARY, "valkey", (7, 2, 8)),
        (VALKEY_9 + PRIMARY, "valkey", (9, 1, 2)),
    ],
)
def test_a_server_with_functions_is_accepted(text: str, name: str, version: tuple[int, ...]) -> None:
    """Redis from 7.0 and Valkey from 7.2 are accepted under their own name and version."""
    server = judge(parse_info(text.encode()), "redis://h")
    assert (server.name, server.version, server.replicas) == (name, version, 2)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (REDIS_6_2 + PRIMARY, errors.ServerTooOld, r"redis 6\.2\.14; at least Redis 7\.0 or Valkey 7\.2"),
        (KEYDB + PRIMARY, errors.ServerTooOld, r"redis 6\.3\.4"),
        (REDIS_7_0 + REPLICA, errors.ServerReadOnly, r"replica of 10\.0\.0\.1:6379"),
        (NODE + PRIMARY, errors.ServerRefused, "cluster mode"),
        (SENTINEL, errors.ServerRefused, "sentinel mode"),
        ("hello", errors.ServerRefused, "names no version"),
        ("redis_version:soon\r\n" + PRIMARY, errors.ServerRefused, "names no version"),
    ],
)
def test_a_server_that_cannot_serve_us_is_refused(text: str, error: type[Exception], told: str) -> None:
    """An old release, a replica, a node of a cluster or a stranger is refused with the reason."""
    with pytest.raises(error, match=told):
        judge(parse_info(text.encode()), "redis://h")


def test_a_node_of_a_cluster_is_accepted_where_one_is_expected() -> None:
    """What is refused as a single server is right in a cluster, under Redis's name of the field and Valkey's."""
    for text in (NODE + PRIMARY, VALKEY_9.replace("standalone", "cluster") + PRIMARY):
        assert judge(parse_info(text.encode()), "redis://h", "cluster").replicas == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("aof_enabled:1\r\nmaxmemory:9\r\nmaxmemory_policy:noeviction\r\n", []),
        ("aof_enabled:1\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", []),
        ("aof_enabled:0\r\nmaxmemory_policy:noeviction\r\n", ["appendonly is off"]),
        ("aof_enabled:1\r\nmaxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n", ["maxmemory-policy is allkeys-lru"]),
    ],
)
def test_what_may_lose_rollouts_is_told(text: str, told: list[str]) -> None:
    """A server without its append-only file, or one that evicts, is told of and not refused."""
    assert [risk[: len(begin)] for risk, begin in zip(risks(parse_info(text.encode())), told, strict=True)] == told
