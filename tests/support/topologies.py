"""Real clusters and services with sentinels, made of server processes that can be killed, paused and started again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import redis

from agl_streams.keys import ShardKeys
from tests.support.raw import Raw
from tests.support.servers import EMBEDDED, Server, Servers, free_port
from tests.support.waiting import PATIENCE_S, until_blocking

HOST: Final = "127.0.0.1"
NODE_TIMEOUT_MS: Final = 800  # how soon a cluster gives a silent node up; the gossip of six nodes needs some of it
DOWN_AFTER_MS: Final = 500  # the same of sentinels
FAILOVER_TIMEOUT_MS: Final = 1_500  # after twice that sentinels that could not agree on a leader try again
PRIMARIES: Final = 3
SLOTS: Final = 16384
SERVICE: Final = "primary"

_REPLICATION: Final = {"repl-diskless-sync-delay": "0"}


class ClusterOfServers:
    """Three primaries, each with a replica.

    Attributes:
        servers: all six; the first three were the primaries at the start.
    """

    def __init__(self, servers: Servers, binary: str = EMBEDDED) -> None:
        self.servers = [servers.start(binary, _node_config(), tcp=True) for _ in range(2 * PRIMARIES)]
        primaries, replicas = self.servers[:PRIMARIES], self.servers[PRIMARIES:]
        step = -(-SLOTS // PRIMARIES)
        for number, server in enumerate(primaries):
            server.execute("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            server.execute("CLUSTER", "ADDSLOTSRANGE", number * step, min((number + 1) * step, SLOTS) - 1)
        bus = [int(_config(server, "cluster-port")) for server in self.servers]
        for server, bus_port in zip(self.servers[1:], bus[1:], strict=True):
            self.servers[0].execute("CLUSTER", "MEET", HOST, server.port, bus_port)
        until_blocking(lambda: all(self._knows_all(server) for server in self.servers), what="the nodes to meet")
        for primary, replica in zip(primaries, replicas, strict=True):
            replica.execute("CLUSTER", "REPLICATE", cast("bytes", primary.execute("CLUSTER", "MYID")))
        self.wait_until_whole()

    @property
    def url(self) -> str:
        """All nodes as seeds."""
        return f"redis+cluster://{','.join(f'{HOST}:{server.port}' for server in self.servers)}"

    def primary_of(self, namespace: str, shard: int = 0) -> Server:
        """The server that a living node takes for the primary of a shard."""
        slot = cast("int", self._alive().execute("CLUSTER", "KEYSLOT", ShardKeys(namespace, shard).meta))
        ranges = cast("Any", self._alive().execute("CLUSTER", "SLOTS"))
        port = next(primary[1] for first, last, primary, *_ in ranges if first <= slot <= last)
        return next(server for server in self.servers if server.port == port)

    def primaries(self) -> list[Server]:
        """The servers that a living node takes for primaries."""
        ranges = cast("Any", self._alive().execute("CLUSTER", "SLOTS"))
        ports = {primary[1] for _, _, primary, *_ in ranges}
        return [server for server in self.servers if server.port in ports]

    def replica_of(self, primary: Server) -> Server:
        """The replica of a primary, as it says itself."""
        _, _, replicas = cast("Any", primary.execute("ROLE"))
        return next(server for server in self.servers if server.port == int(replicas[0][1]))

    def move_shard(self, namespace: str, shard: int, target: Server) -> None:
        """Move the slot of a shard to another primary, in one step (Valkey 9), and wait until all know of it."""
        source = self.primary_of(namespace, shard)
        slot = cast("int", source.execute("CLUSTER", "KEYSLOT", ShardKeys(namespace, shard).meta))
        name = cast("bytes", target.execute("CLUSTER", "MYID"))
        source.execute("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
        until_blocking(lambda: self.primary_of(namespace, shard) is target, what="the slot to move")

    def wait_until_replaced(self, server: Server) -> None:
        """Wait until no living node takes a server for a primary."""

        def replaced() -> bool:
            ranges = cast("Any", self._alive().execute("CLUSTER", "SLOTS"))
            return all(primary[1] != server.port for _, _, primary, *_ in ranges)

        until_blocking(replaced, what="another node to take over")

    def start_missing(self) -> None:
        """Start what a test has killed, on the data that it had."""
        for server in self.servers:
            if not server.running:
                server.start()

    def wait_until_whole(self) -> None:
        """Wait until every node is there and content, and every replica has what its primary has."""
        until_blocking(lambda: all(_is_content(server) for server in self.servers), what="a whole cluster")

    def forget_calls(self) -> None:
        """Count calls and errors from now on."""
        for server in self.servers:
            server.execute("CONFIG", "RESETSTAT")

    def calls(self, command: str) -> int:
        """How often a command was called, on all nodes together."""
        return self._sum("commandstats", f"cmdstat_{command}:calls=")

    def errors(self, code: str) -> int:
        """How often an error reply was given, by all nodes together."""
        return self._sum("errorstats", f"errorstat_{code}:count=")

    def _sum(self, section: str, prefix: str) -> int:
        replies = [cast("bytes", server.execute("INFO", section)).decode() for server in self.servers]
        lines = [line for reply in replies for line in reply.splitlines() if line.startswith(prefix)]
        return sum(int(line.removeprefix(prefix).partition(",")[0]) for line in lines)

    def _alive(self) -> Server:
        return next(server for server in self.servers if server.answers())

    def _knows_all(self, server: Server) -> bool:
        info = cast("bytes", server.execute("CLUSTER", "INFO"))
        return f"cluster_known_nodes:{len(self.servers)}".encode() in info


class SentinelsAndServers:
    """A primary with a replica, and three sentinels that watch them."""

    def __init__(self, servers: Servers, binary: str = EMBEDDED) -> None:
        first, second = pair(servers, binary)
        self.servers = [first, second]
        self.sentinels = [servers.start(binary, tcp=True, sentinel=True) for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.execute("SENTINEL", "MONITOR", SERVICE, HOST, first.port, 2)
            for option, value in (
                ("down-after-milliseconds", DOWN_AFTER_MS),
                ("failover-timeout", FAILOVER_TIMEOUT_MS),
            ):
                sentinel.execute("SENTINEL", "SET", SERVICE, option, value)
        until_blocking(
            lambda: all(_knows_others(sentinel) for sentinel in self.sentinels), what="the sentinels to meet"
        )

    @property
    def url(self) -> str:
        """The service as its users know it."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def primary(self) -> Server:
        """The server that a sentinel takes for the primary."""
        _, port = cast("list[bytes]", self.sentinels[0].execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE))
        return next(server for server in self.servers if server.port == int(port))

    def wait_until_replaced(self, server: Server) -> None:
        """Wait until the sentinels name another primary, and it is one."""
        until_blocking(lambda: self.primary is not server and role(self.primary) == b"master", what="a failover")

    def wait_until_whole(self) -> None:
        """Wait until the one that is not the primary is its replica, and in step."""
        until_blocking(
            lambda: any(_is_in_step(server) for server in self.servers if server is not self.primary),
            what="a replica to be in step",
        )


def pair(servers: Servers, binary: str = EMBEDDED) -> tuple[Server, Server]:
    """A primary and its replica, which has what the primary has."""
    primary = servers.start(binary, _REPLICATION, tcp=True)
    replica = servers.start(binary, {**_REPLICATION, "replicaof": f"{HOST} {primary.port}"}, tcp=True)
    until_blocking(lambda: _is_in_step(replica), what="the replica to be in step")
    wait_until_acknowledged(primary)
    return primary, replica


def wait_until_acknowledged(primary: Server) -> None:
    """Wait until the replica of a primary says that it has what was written there until now."""
    with Raw(primary.url) as raw:
        raw.execute_many([("SET", "t", 1), ("DEL", "t")])  # WAIT waits for what its own connection has written
        assert raw.execute("WAIT", 1, round(PATIENCE_S * 1000)) == 1, "the replica does not acknowledge"


def _node_config() -> Mapping[str, str]:
    return {
        **_REPLICATION,
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),
        "cluster-node-timeout": str(NODE_TIMEOUT_MS),
        "cluster-replica-validity-factor": "0",  # a replica is promoted however long it has heard nothing
        "cluster-allow-replica-migration": "no",  # replicas stay where the test expects them
    }


def _config(server: Server, name: str) -> bytes:
    return cast("list[bytes]", server.execute("CONFIG", "GET", name))[1]


def _is_content(server: Server) -> bool:
    if not server.answers() or b"cluster_state:ok" not in cast("bytes", server.execute("CLUSTER", "INFO")):
        return False
    return role(server) == b"master" or _is_in_step(server)


def role(server: Server) -> bytes:
    """What a server takes itself for: ``master`` or ``slave``."""
    return cast("list[bytes]", server.execute("ROLE"))[0]


def _is_in_step(server: Server) -> bool:
    try:
        role = cast("list[Any]", server.execute("ROLE"))
    except redis.ConnectionError:
        return False
    return role[0] == b"slave" and role[3] == b"connected"


def _knows_others(sentinel: Server) -> bool:
    flat = cast("list[bytes]", sentinel.execute("SENTINEL", "MASTER", SERVICE))
    known = dict(zip(flat[::2], flat[1::2], strict=True))
    return known[b"num-other-sentinels"] == b"2" and known[b"num-slaves"] == b"1"
