"""The client: commands and replies, the errors of a server that cannot serve us, and where a client may be used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agl_streams import connection as connection_module
from agl_streams import errors
from agl_streams.config import load_settings
from agl_streams.connection import Arg, RedisConnection
from tests.support.certificates import self_signed
from tests.support.processes import ProcessGroup
from tests.support.raw import Raw
from tests.support.servers import ALL_BINARIES, REDIS_7_0, Servers, free_port
from tests.support.waiting import until

PASSWORD = "s3cret/#word"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on a server that is away after a moment."""
    monkeypatch.setattr(connection_module, "RETRY_FOR_S", 0.1)


async def test_a_command_is_answered_in_bytes(connection: RedisConnection) -> None:
    """A command returns the server's reply as RESP2 gives it: bytes, numbers, None and lists of these."""
    key = "agl:{t.0}:meta"
    assert await connection.execute("HSET", key, "text", "é", "number", 1.5, "raw", b"\x00\xff") == 3
    assert await connection.execute("HMGET", key, "text", "number", "raw", "none") == [
        "é".encode(), b"1.5", b"\x00\xff", None,
    ]  # fmt: skip


async def test_a_large_value_comes_back_whole(connection: RedisConnection) -> None:
    """A value far above any buffer's size makes the way there and back."""
    value = bytes(range(256)) * 40_000
    assert await connection.execute("ECHO", value) == value


async def test_a_pipeline_keeps_the_order_of_its_replies(connection: RedisConnection) -> None:
    """The replies of a pipeline stand in the order of its commands, however many there are."""
    texts = [f"{number}".encode() for number in range(1_000)]
    assert await connection.pipeline([("ECHO", text) for text in texts]) == texts
    assert await connection.pipeline([]) == []


async def test_a_pipeline_raises_its_first_error_after_all_commands(connection: RedisConnection) -> None:
    """An error in a pipeline is raised once every command was carried out, and the connection stays usable."""
    key = "agl:{t.0}:meta"
    commands: list[tuple[Arg, ...]] = [("HSET", key, "a", 1), ("XLEN", key), ("NONSENSE",), ("HSET", key, "b", 2)]
    with pytest.raises(errors.CommandFailed) as caught:
        await connection.pipeline(commands)
    assert caught.value.code == "WRONGTYPE"
    assert await connection.execute("HLEN", key) == 2


async def test_many_commands_share_few_connections(redis_url: str) -> None:
    """More callers than connections wait for each other, and each gets its own answer."""
    connection = await RedisConnection.open(f"{redis_url}?max_connections=3")
    texts = [f"{number}".encode() for number in range(300)]
    assert await asyncio.gather(*(connection.execute("ECHO", text) for text in texts)) == texts
    listed = await connection.execute("CLIENT", "LIST")
    assert isinstance(listed, bytes)
    await connection.close()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("XREADGROUP", "GROUP", "g", "c", "STREAMS", "agl:{t.0}:log", ">"), "NOGROUP"),
        (("EVAL", "return redis.error_reply('Conflict it is taken')", 0), "Conflict"),
        (("NONSENSE",), "ERR"),
        (("FCALL", "no_such_function", 0), "ERR"),
    ],
)
async def test_an_error_reply_keeps_its_code(connection: RedisConnection, command: tuple[Arg, ...], code: str) -> None:
    """An error reply is raised as CommandFailed with its first word as the code and its whole text."""
    with pytest.raises(errors.CommandFailed) as caught:
        await connection.execute(*command)
    assert caught.value.code == code
    assert caught.value.detail.startswith(code)


@pytest.mark.parametrize("bad", [None, True, [1], {"a": 1}, object(), "\ud800"])
async def test_what_cannot_be_sent_is_refused(connection: RedisConnection, bad: object) -> None:
    """An argument that is no bytes, text or number is refused before anything is sent."""
    with pytest.raises(errors.InvalidRequest, match=r"ECHO.*"):
        await connection.execute("ECHO", bad)  # pyright: ignore[reportArgumentType]  # what the test is about


@pytest.mark.parametrize("binary", ALL_BINARIES)
async def test_the_server_tells_what_it_is(servers: Servers, binary: str) -> None:
    """After open, name and version of the server are known."""
    connection = await RedisConnection.open(servers.start(binary).url)
    name, oldest = ("redis", (7, 0)) if binary == REDIS_7_0 else ("valkey", (9, 1))
    assert (connection.server.name, connection.server.version[:2]) == (name, oldest)
    await connection.close()


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
async def test_a_password_is_needed_and_never_shown(servers: Servers, tcp: bool) -> None:
    """A missing or wrong password is an AuthenticationFailed that shows no password; the right one serves."""
    server = servers.start(config={"requirepass": PASSWORD}, tcp=tcp)
    with pytest.raises(errors.AuthenticationFailed, match="needs a password: put it into AGL_REDIS_URL"):
        await RedisConnection.open(server.url)
    for password in ("wrong", PASSWORD):
        quoted = password.replace("/", "%2F").replace("#", "%23")
        url = server.url.replace("redis://", f"redis://:{quoted}@") if tcp else f"{server.url}?password={quoted}"
        if password == PASSWORD:
            connection = await RedisConnection.open(url)
            assert PASSWORD not in connection.public_url
            await connection.close()
        else:
            with pytest.raises(errors.AuthenticationFailed, match="refuses the user or password") as caught:
                await RedisConnection.open(url)
            assert "wrong" not in str(caught.value)


async def test_a_missing_permission_is_named(servers: Servers) -> None:
    """A command that the ACL user may not run is a ServerRefused that says so."""
    server = servers.start(tcp=True)
    server.execute("ACL", "SETUSER", "small", "on", ">pw", "~*", "+ping", "+info")
    connection = await RedisConnection.open(server.url.replace("redis://", "redis://small:pw@"))
    with pytest.raises(errors.ServerRefused, match="lacks a permission"):
        await connection.execute("SET", "k", "v")
    await connection.close()


async def test_a_replica_is_refused(servers: Servers) -> None:
    """A replica is refused at open, and a server that becomes one answers writes with ServerReadOnly."""
    primary = servers.start(tcp=True)
    replica = servers.start()
    connection = await RedisConnection.open(replica.url)
    replica.execute("REPLICAOF", "127.0.0.1", primary.port)
    with pytest.raises(errors.ServerReadOnly, match="point AGL_REDIS_URL at the primary"):
        await connection.execute("SET", "k", "v")
    with pytest.raises(errors.ServerReadOnly, match=f"replica of 127.0.0.1:{primary.port}"):
        await RedisConnection.open(replica.url)
    await connection.close()


async def test_too_few_replicas_are_noticed(servers: Servers) -> None:
    """With AGL_MIN_REPLICAS the server must have as many replicas connected."""
    primary = servers.start(tcp=True)
    settings = load_settings(min_replicas=1)
    with pytest.raises(errors.NotReplicated, match=r"0 replicas connected, and AGL_MIN_REPLICAS=1"):
        await RedisConnection.open(primary.url, settings=settings)
    servers.start().execute("REPLICAOF", "127.0.0.1", primary.port)
    await until(lambda: b"connected_slaves:1" in bytes(str(primary.execute("INFO", "replication")), "utf-8"))
    connection = await RedisConnection.open(primary.url, settings=settings)
    assert connection.server.replicas == 1
    await connection.close()


async def test_a_full_server_is_out_of_memory(servers: Servers) -> None:
    """A server at its maxmemory refuses with OutOfMemory, and still answers reads."""
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    await connection.execute("SET", "k", "v")
    server.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(errors.OutOfMemory, match="maxmemory"):
        await connection.execute("SET", "k", "w")
    assert await connection.execute("GET", "k") == b"v"
    await connection.close()


@pytest.mark.usefixtures("impatient")
async def test_a_refused_connection_names_the_url(tmp_path: Path) -> None:
    """Nobody listening is a StoreUnavailable that names the URL without credentials."""
    port = free_port()
    for url, shown in (
        (f"redis://me:{PASSWORD.replace('/', '%2F').replace('#', '%23')}@127.0.0.1:{port}/1", f"127.0.0.1:{port}"),
        (f"unix://{tmp_path}/nobody.sock?password=s3cret", f"{tmp_path}/nobody.sock"),
    ):
        with pytest.raises(errors.StoreUnavailable, match="cannot reach") as caught:
            await RedisConnection.open(url)
        assert shown in str(caught.value)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis+cluster://h1:1,h2:2/1", "a cluster has only database 0"),
        ("redis+cluster://u:s3cret@h1:1,:2", "a host is missing, as in redis://localhost:6379"),
        ("redis+cluster://:s3cret/x@h1:1,h2:2", "percent-encoded"),
        ("redis+sentinel://u:s3cret@h1:1,h2:2", "the service that the sentinels watch is missing"),
        ("redis+sentinel://u:s3cret/x@h1:1/primary", "percent-encoded"),
        ("redis+sentinel://h1:1/primary/zero", "'zero' must be a number"),
        ("redis+sentinel://h1:1/primary?sentinel_passwort=s3cret", "option that redis-py does not know"),
        ("http://localhost", "does not begin with redis://"),
        ("localhost:6379", "does not begin with redis://"),
        ("redis://:s3cret/x@localhost", "percent-encoded"),
        ("redis://[::1", "percent-encoded"),
        ("redis://localhost/zero", "'zero' must be a number"),
        ("redis://localhost?socket_timeout=soon", "Invalid value for 'socket_timeout'"),
        ("redis://u:s3cret@localhost?sockettimeout=3", "option that redis-py does not know"),
        ("redis://u:s3cret@localhost?max_connections=0", "max_connections"),
        ("redis://u:s3cret@localhost?socket_timeout=-1", "socket_timeout"),
    ],
)
async def test_a_bad_url_is_explained(url: str, told: str) -> None:
    """A URL that cannot be used is a ConfigError that says why and shows no password."""
    with pytest.raises(errors.ConfigError) as caught:
        await RedisConnection.open(url)
    assert told in str(caught.value)
    assert "AGL_REDIS_URL" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_socket_path_may_hold_odd_characters(servers: Servers) -> None:
    """A percent-encoded socket path is decoded."""
    server = servers.start()
    odd = server.directory / "a b%3F#é.sock"
    odd.symlink_to(server.directory / "server.sock")
    connection = await RedisConnection.open(f"unix://{server.directory}/a%20b%253F%23%C3%A9.sock")
    assert await connection.execute("PING") == b"PONG"
    await connection.close()


async def test_tls_is_verified(servers: Servers, tmp_path: Path) -> None:
    """A rediss:// URL speaks TLS and trusts only the authority that it names."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    self_signed(certificate, key)
    server = servers.start(REDIS_7_0)
    port = free_port()
    server.execute(
        "CONFIG", "SET", "tls-cert-file", str(certificate), "tls-key-file", str(key), "tls-auth-clients", "no"
    )
    server.execute("CONFIG", "SET", "tls-ca-cert-file", str(certificate))
    server.execute("CONFIG", "SET", "tls-port", port)
    connection = await RedisConnection.open(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}")
    assert await connection.execute("PING") == b"PONG"
    await connection.close()


async def test_tls_of_a_stranger_is_refused(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that no trusted authority signed is refused, and the error says so."""
    monkeypatch.setattr(connection_module, "RETRY_FOR_S", 0.1)
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    self_signed(certificate, key)
    server = servers.start(REDIS_7_0)
    port = free_port()
    server.execute(
        "CONFIG", "SET", "tls-cert-file", str(certificate), "tls-key-file", str(key), "tls-auth-clients", "no"
    )
    server.execute("CONFIG", "SET", "tls-port", port)
    with pytest.raises(errors.StoreUnavailable, match=r"(?i)certificate"):
        await RedisConnection.open(f"rediss://127.0.0.1:{port}")


async def test_another_event_loop_is_refused(redis_url: str) -> None:
    """A connection used from another event loop raises WrongLoop and says what to do; its own loop goes on."""
    connection = await RedisConnection.open(redis_url)

    def elsewhere() -> None:
        asyncio.run(use())

    async def use() -> None:
        for attempt in (
            lambda: connection.execute("PING"),
            lambda: connection.execute_once("PING"),
            lambda: connection.pipeline([("PING",)]),
            connection.close,
        ):
            with pytest.raises(errors.WrongLoop, match="Open one in each process and event loop"):
                await attempt()
        with pytest.raises(errors.WrongLoop):
            connection.reader()

    await asyncio.to_thread(elsewhere)
    assert await connection.execute("PING") == b"PONG"
    await connection.close()


FORK = """
import asyncio, os, sys
from agl_streams.connection import RedisConnection
from agl_streams.errors import WrongLoop

async def main():
    connection = await RedisConnection.open(sys.argv[1])
    child = os.fork()
    if child == 0:
        try:
            await connection.execute("PING")
        except WrongLoop as error:
            print("child:", error, flush=True)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    print("parent:", await connection.execute("PING"), flush=True)
    await connection.close()

asyncio.run(main())
"""


def test_a_fork_is_refused(redis_url: str, processes: ProcessGroup) -> None:
    """A connection used in a fork of its process raises WrongLoop there, and the parent goes on undisturbed."""
    process = processes.python(FORK, redis_url)
    assert process.wait() == 0, process.output
    assert "is used in its fork" in process.output
    assert "parent: b'PONG'" in process.output


async def test_a_closed_connection_says_so(redis_url: str) -> None:
    """After close every command is refused with a clear error, close itself may be repeated, and no client is left."""
    connection = await RedisConnection.open(redis_url)
    own_id = await connection.execute("CLIENT", "ID")
    await connection.close()
    await connection.close()
    with pytest.raises(errors.StoreUnavailable, match="has been closed"):
        await connection.execute("PING")
    with Raw(redis_url) as raw:
        await until(lambda: f"id={own_id} ".encode() not in raw.execute("CLIENT", "LIST"), what="the client to be gone")
