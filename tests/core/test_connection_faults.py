"""The client while its server crashes, restarts, loads, hangs, or its caller is cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import cast

import pytest
import redis.exceptions
import uvloop
from redis.asyncio.connection import DefaultParser

from agl_streams import connection as connection_module
from agl_streams import errors, wire
from agl_streams.connection import RedisConnection
from tests.support.raw import Raw, ask
from tests.support.servers import ALL_BINARIES, Server, Servers
from tests.support.waiting import turns, until

# As the client library makes an exception of an error reply; its parameter has no declared type.
parse_error = cast("Callable[[str], redis.exceptions.RedisError]", DefaultParser.parse_error)  # pyright: ignore[reportUnknownMemberType]  # that is why it is cast

LOADING_KEYS = 3_000
LOADING_US_PER_KEY = 500  # a load of 1.5 s


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("binary", ALL_BINARIES)
def test_a_restart_is_survived(servers: Servers, binary: str, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Commands sent while the server is down succeed once it is back, and what was acknowledged is still there."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(restart_under_load(servers.start(binary, {"appendfsync": "always"})))


async def restart_under_load(server: Server) -> None:
    connection = await RedisConnection.open(server.url)
    for number in range(5):
        await connection.execute("SET", f"before-{number}", number)
        server.kill()
        waiting = [asyncio.create_task(connection.execute("INCR", f"key-{each}")) for each in range(20)]
        piped = asyncio.create_task(connection.pipeline([("SET", "piped", number), ("GET", "piped")]))
        await turns(3)
        server.start()
        assert await asyncio.gather(*waiting) == [number + 1] * 20
        assert await piped == [b"OK", b"%d" % number]
    assert await connection.execute("MGET", *(f"before-{n}" for n in range(5))) == [b"%d" % n for n in range(5)]
    await connection.close()


async def test_a_command_sent_once_is_not_repeated(servers: Servers) -> None:
    """A cut in the middle of execute_once is a StoreUnavailable at once; the next command connects again."""
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    blocked = asyncio.create_task(connection.execute_once("BLPOP", "list", 0))
    await until(lambda: "blocked_clients:1" in str(server.execute("INFO", "clients")))
    server.kill()
    with pytest.raises(errors.StoreUnavailable):
        await blocked
    server.start()
    assert await connection.execute_once("PING") == b"PONG"
    await connection.close()


async def test_an_idle_connection_that_was_closed_is_replaced(servers: Servers) -> None:
    """A connection that the server closed while it was idle does not fail the next command, not even one sent once."""
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    for _ in range(20):
        server.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: str(server.execute("CLIENT", "LIST")).count("id=") == 1, what="the client to be gone")
        await turns(3)
        assert await connection.execute_once("PING") == b"PONG"
    await connection.close()


async def test_giving_up_has_a_limit(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stays away fails the command with StoreUnavailable, and serves again after it has come back."""
    monkeypatch.setattr(connection_module, "RETRY_FOR_S", 0.3)
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    server.kill()
    with pytest.raises(errors.StoreUnavailable, match="cannot reach"):
        await connection.execute("PING")
    server.start()
    assert await connection.execute("PING") == b"PONG"
    await connection.close()


async def test_a_loading_server_is_waited_for(servers: Servers) -> None:
    """While the server loads its data it answers LOADING, and commands and open wait for the end of it."""
    server = servers.start(
        config={"key-load-delay": str(LOADING_US_PER_KEY), "loading-process-events-interval-bytes": "1024"}
    )
    connection = await RedisConnection.open(server.url)
    await connection.pipeline([("SET", f"key-{number}", number) for number in range(LOADING_KEYS)])
    server.execute("BGREWRITEAOF")  # only what is in the base file is loaded key by key
    await until(lambda: "aof_rewrite_in_progress:0" in str(server.execute("INFO", "persistence")))
    server.kill()
    server.start(wait=False)
    await until(lambda: _is_loading(server), what="the server to be loading")
    other = asyncio.create_task(RedisConnection.open(server.url))
    assert await connection.execute("GET", f"key-{LOADING_KEYS - 1}") == b"%d" % (LOADING_KEYS - 1)
    await (await other).close()
    await connection.close()


def _is_loading(server: Server) -> bool:
    try:
        ask(server.url, "PING")
    except redis.exceptions.BusyLoadingError:
        return True
    except redis.exceptions.ConnectionError:
        return False
    raise AssertionError("the server has loaded before anybody saw it loading")


async def test_a_server_that_hangs_times_out(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and does not answer fails the command; when it answers again, so do we, and correctly."""
    monkeypatch.setattr(connection_module, "RETRY_FOR_S", 0.3)
    server = servers.start()
    connection = await RedisConnection.open(f"{server.url}?socket_timeout=0.2")
    server.pause()
    with pytest.raises(errors.StoreUnavailable, match="did not answer in time"):
        await connection.execute("ECHO", "lost")
    server.resume()
    monkeypatch.undo()
    assert [await connection.execute("ECHO", str(number)) for number in range(10)] == [b"%d" % n for n in range(10)]
    await connection.close()


async def test_a_hung_server_is_waited_for(servers: Servers) -> None:
    """A command that met a hanging server is repeated and succeeds when the server goes on in time."""
    server = servers.start()
    connection = await RedisConnection.open(f"{server.url}?socket_timeout=0.1")
    server.pause()
    waiting = asyncio.create_task(connection.execute("ECHO", "found"))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    server.resume()
    assert await waiting == b"found"
    await connection.close()


async def test_a_cancelled_command_does_not_poison_its_connection(redis_url: str) -> None:
    """However far a cancelled command had come, the next command on that connection reads its own reply."""
    connection = await RedisConnection.open(f"{redis_url}?max_connections=1")
    chance = random.Random(7)
    for number in range(300):
        doomed = (
            asyncio.create_task(connection.execute("ECHO", f"doomed-{number}")),
            asyncio.create_task(connection.pipeline([("ECHO", "doomed")] * 5)),
        )
        await turns(chance.randrange(12))
        for task in doomed:
            task.cancel()
        assert await connection.execute("ECHO", f"good-{number}") == f"good-{number}".encode()
        await asyncio.gather(*doomed, return_exceptions=True)
    await connection.close()


async def test_a_cancelled_blocking_command_does_not_poison_its_connection(redis_url: str) -> None:
    """A command cancelled while it blocks at the server leaves no reply behind for the next one."""
    connection = await RedisConnection.open(f"{redis_url}?max_connections=1")
    with Raw(redis_url) as raw:
        for number in range(20):
            doomed = asyncio.create_task(connection.execute("BLPOP", "agl:{t.0}:tasks", 0.05))
            await until(lambda: b"blocked_clients:1" in raw.execute("INFO", "clients"))
            doomed.cancel()
            assert await connection.execute("ECHO", f"good-{number}") == f"good-{number}".encode()
            await asyncio.gather(doomed, return_exceptions=True)
    await connection.close()


async def test_cancelling_those_who_wait_for_a_connection_leaves_it_to_the_others(redis_url: str) -> None:
    """A connection that is being made for several callers is made, though some of them are cancelled."""
    connection = await RedisConnection.open(f"{redis_url}?max_connections=2")
    waiting = [asyncio.create_task(connection.execute("PING")) for _ in range(50)]
    await turns(2)
    for task in waiting[::2]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert await asyncio.gather(*(connection.execute("PING") for _ in range(10))) == [b"PONG"] * 10
    await connection.close()


def _subclasses(kind: type[Exception]) -> set[type[Exception]]:
    return {kind, *(deeper for child in kind.__subclasses__() for deeper in _subclasses(child))}


ERRORS_OF_THE_CLIENT = sorted(_subclasses(redis.exceptions.RedisError), key=str)


@pytest.mark.parametrize("kind", ERRORS_OF_THE_CLIENT)
def test_every_error_of_the_client_library_is_mapped(kind: type[Exception]) -> None:
    """Each exception of redis-py becomes one of our tree."""
    needs_an_address = issubclass(kind, redis.exceptions.AskError)
    error = kind("1 h:1") if needs_an_address else kind("text")
    assert isinstance(error, wire.FAULTS)
    assert isinstance(wire.translate(error, "redis://h"), errors.AglError)


@pytest.mark.parametrize(
    ("reply", "ours", "repeated"),
    [
        ("LOADING Redis is loading the dataset in memory", errors.StoreUnavailable, True),
        ("TRYAGAIN Multiple keys request during rehashing of slot", errors.StoreUnavailable, True),
        ("MASTERDOWN Link with MASTER is down", errors.StoreUnavailable, True),
        ("CLUSTERDOWN The cluster is down", errors.StoreUnavailable, True),
        ("BUSY Redis is busy running a script", errors.StoreUnavailable, True),
        ("ERR max number of clients reached", errors.StoreUnavailable, True),
        ("MISCONF Errors writing to the AOF file", errors.StoreUnavailable, False),
        ("OOM command not allowed when used memory > 'maxmemory'.", errors.OutOfMemory, False),
        ("READONLY You can't write against a read only replica.", errors.ServerReadOnly, False),
        ("NOREPLICAS Not enough good replicas to write.", errors.NotReplicated, False),
        ("NOAUTH Authentication required.", errors.AuthenticationFailed, False),
        ("WRONGPASS invalid username-password pair", errors.AuthenticationFailed, False),
        ("NOPERM this user has no permissions to run the 'get' command", errors.ServerRefused, False),
        ("NOGROUP No such consumer group 'g' for key name 'k'", errors.CommandFailed, False),
        ("NOSCRIPT No matching script.", errors.CommandFailed, False),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", errors.CommandFailed, False),
        ("ERR Function not found", errors.CommandFailed, False),
    ],
)
def test_each_error_reply_has_its_error(reply: str, ours: type[errors.AglError], repeated: bool) -> None:
    """An error reply, taken apart as the client library does it, becomes the right error and is repeated or not."""
    error = parse_error(reply)
    assert type(wire.translate(error, "redis://h")) is ours
    assert wire.is_transient(error) is repeated
    if isinstance(translated := wire.translate(error, "redis://h"), errors.CommandFailed):
        assert translated.detail == reply
        assert translated.code == reply.partition(" ")[0]
