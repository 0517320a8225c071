"""Blocked reads: stopped at the server, never cancelled, and every entry given to somebody exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
import uvloop

from agl_streams import errors
from agl_streams.connection import Arg, BlockingReader, RedisConnection, Reply
from tests.support.raw import Raw
from tests.support.servers import Servers
from tests.support.waiting import turns, until

TASKS = "agl:{t.0}:tasks"
GROUP = "runners"
ENTRIES = 200
LONG_MS = 60_000


def group_read(block_ms: int, count: int = 10) -> tuple[Arg, ...]:
    return ("XREADGROUP", "GROUP", GROUP, "me", "COUNT", count, "BLOCK", block_ms, "STREAMS", TASKS, ">")


def entry_ids(reply: Reply) -> list[bytes]:
    """Ids of the entries in an XREAD or XREADGROUP reply."""
    streams = cast("list[Any]", reply or [])
    return [entry[0] for _, entries in streams for entry in entries]


def clients(raw: Raw) -> int:
    """How many clients the server has, this one included."""
    listed: bytes = raw.execute("CLIENT", "LIST")
    return len(listed.splitlines())


async def make_group(connection: RedisConnection) -> None:
    await connection.execute("XGROUP", "CREATE", TASKS, GROUP, "0", "MKSTREAM")


async def add(connection: RedisConnection, number: int) -> bytes:
    entry_id = await connection.execute("XADD", TASKS, "*", "n", number)
    assert isinstance(entry_id, bytes)
    return entry_id


async def blocked(connection: RedisConnection, reader: BlockingReader) -> asyncio.Task[Reply]:
    """A read that the server has taken and holds."""
    task = asyncio.create_task(reader.read("XREAD", "BLOCK", LONG_MS, "STREAMS", TASKS, "$", block_ms=LONG_MS))

    async def holds() -> bool:
        return b"blocked_clients:1" in cast("bytes", await connection.execute("INFO", "clients"))

    await until(holds, what="the read to block")
    return task


async def test_a_read_returns_what_comes_and_none_when_nothing_does(connection: RedisConnection) -> None:
    """A blocked read returns a new entry as it comes, what is there at once, and None after its time."""
    reader = connection.reader()
    waiting = await blocked(connection, reader)
    first = await add(connection, 1)
    assert entry_ids(await waiting) == [first]
    assert entry_ids(await reader.read("XREAD", "BLOCK", 10, "STREAMS", TASKS, "0", block_ms=10)) == [first]
    assert await reader.read("XREAD", "BLOCK", 10, "STREAMS", TASKS, "$", block_ms=10) is None
    await reader.close()


async def test_stop_ends_a_blocked_read(connection: RedisConnection) -> None:
    """Stop ends the pending read with None, does nothing without one, and a later read blocks and reads again."""
    reader = connection.reader()
    await reader.stop()
    for number in range(3):
        waiting = await blocked(connection, reader)
        await asyncio.gather(reader.stop(), reader.stop())
        assert waiting.done()
        assert await waiting is None
        waiting = await blocked(connection, reader)
        entry_id = await add(connection, number)
        assert entry_ids(await waiting) == [entry_id]
    await reader.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["stop", "cancel", "cancel and take"])
@pytest.mark.leaves_pending  # the entries are read and never acknowledged
def test_stops_that_race_new_entries_lose_none(
    redis_url: str, way: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Of 200 entries added while a read is stopped or its caller cancelled, each is delivered exactly once."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(race_stops_with_entries(redis_url, way))


async def race_stops_with_entries(redis_url: str, way: str) -> None:
    connection = await RedisConnection.open(redis_url)
    await make_group(connection)
    reader = connection.reader()
    chance = random.Random(way)
    delivered: list[bytes] = []
    added: list[bytes] = []
    for number in range(ENTRIES):
        waiting = asyncio.create_task(reader.read(*group_read(LONG_MS), block_ms=LONG_MS))
        await turns(chance.randrange(12))
        adding = asyncio.create_task(add(connection, number))
        await turns(chance.randrange(12))
        if way == "stop":
            await reader.stop()
        else:
            waiting.cancel()
        reply = await asyncio.gather(waiting, return_exceptions=True)
        delivered += [] if isinstance(reply[0], BaseException) else entry_ids(reply[0])
        if way == "cancel and take":
            delivered += entry_ids(await reader.take())
        added.append(await adding)
    while ids := entry_ids(await reader.read(*group_read(100), block_ms=100)):
        delivered += ids
    assert Counter(delivered) == Counter(added)
    assert await connection.execute("XPENDING", TASKS, GROUP) == [ENTRIES, added[0], added[-1], [[b"me", b"200"]]]
    await connection.close()


@pytest.mark.leaves_pending  # the entry is read and never acknowledged
async def test_what_a_cancelled_read_brought_is_kept(connection: RedisConnection) -> None:
    """An entry that arrives while the caller is being cancelled is returned by the next read, whatever that asks."""
    await make_group(connection)
    reader = connection.reader()
    waiting = asyncio.create_task(reader.read(*group_read(LONG_MS), block_ms=LONG_MS))

    async def holds() -> bool:
        return b"blocked_clients:1" in cast("bytes", await connection.execute("INFO", "clients"))

    await until(holds)
    with Raw(connection.public_url) as raw:
        entry_id = raw.execute("XADD", TASKS, "*", "n", 1)  # answered before this loop can read the entry
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    other = ("XREAD", "BLOCK", 10, "STREAMS", TASKS, "$")
    assert entry_ids(await reader.read(*other, block_ms=10)) == [entry_id]
    assert await reader.read(*other, block_ms=10) is None
    assert await reader.take() is None
    await reader.close()


async def test_a_short_socket_timeout_does_not_cut_a_blocked_read(redis_url: str) -> None:
    """With socket_timeout in the URL far below BLOCK, idle reads end in None, on one connection and without errors."""
    connection = await RedisConnection.open(f"{redis_url}?socket_timeout=0.05")
    reader = connection.reader()
    await reader.read("XREAD", "BLOCK", 1, "STREAMS", TASKS, "$", block_ms=1)
    with Raw(redis_url) as raw:
        before = raw.execute("INFO", "stats").split(b"total_connections_received:")[1].split(b"\r\n")[0]
        for _ in range(4):
            assert await reader.read("XREAD", "BLOCK", 200, "STREAMS", TASKS, "$", block_ms=200) is None
        assert f"total_connections_received:{int(before)}\r\n".encode() in raw.execute("INFO", "stats")
    await connection.close()


async def test_a_cut_read_says_so_and_the_next_connects_again(servers: Servers) -> None:
    """A server that dies fails the pending read with StoreUnavailable; once it is back the next read works."""
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    reader = connection.reader()
    for number in range(3):
        waiting = await blocked(connection, reader)
        server.kill()
        with pytest.raises(errors.StoreUnavailable):
            await waiting
        with pytest.raises(errors.StoreUnavailable, match="cannot reach"):
            await reader.read("XREAD", "BLOCK", 10, "STREAMS", TASKS, "$", block_ms=10)
        server.start()
        entry_id = await add(connection, number)
        reply = await reader.read("XREVRANGE", TASKS, "+", "-", "COUNT", 1, block_ms=10)
        assert isinstance(reply, list)
        assert cast("list[Any]", reply)[0][0] == entry_id
        waiting = await blocked(connection, reader)  # and it can be stopped: its client id is the new one
        await reader.stop()
        assert await waiting is None
    await connection.close()


async def test_a_reader_that_was_cut_while_idle_reads_on(servers: Servers) -> None:
    """A connection closed by the server between two reads is replaced without an error, and can be stopped."""
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    reader = connection.reader()
    await reader.read("XREAD", "BLOCK", 1, "STREAMS", TASKS, "$", block_ms=1)
    with Raw(server.url) as raw:
        raw.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: clients(raw) == 1, what="the reader to be cut")
    await turns(3)
    waiting = await blocked(connection, reader)
    await reader.stop()
    assert await waiting is None
    await connection.close()


async def test_an_error_reply_is_raised_and_the_reader_goes_on(connection: RedisConnection) -> None:
    """NOGROUP is raised as CommandFailed, also in the middle of a block, and the reader works afterwards."""
    reader = connection.reader()
    with pytest.raises(errors.CommandFailed) as caught:
        await reader.read(*group_read(10), block_ms=10)
    assert caught.value.code == "NOGROUP"
    await make_group(connection)
    waiting = asyncio.create_task(reader.read(*group_read(LONG_MS), block_ms=LONG_MS))

    async def holds() -> bool:
        return b"blocked_clients:1" in cast("bytes", await connection.execute("INFO", "clients"))

    await until(holds)
    await connection.execute("DEL", TASKS)
    with pytest.raises(errors.CommandFailed) as caught:
        await waiting
    assert caught.value.code in ("NOGROUP", "UNBLOCKED")
    await make_group(connection)
    assert await reader.read(*group_read(10), block_ms=10) is None
    await reader.close()
    await connection.execute("DEL", TASKS)


async def test_stop_during_an_outage_does_not_wait_for_the_server(servers: Servers) -> None:
    """A reader that waits to connect again is stopped at once, though nobody can unblock it at the server."""
    server = servers.start()
    connection = await RedisConnection.open(server.url)
    reader = connection.reader()
    await reader.read("XREAD", "BLOCK", 1, "STREAMS", TASKS, "$", block_ms=1)
    server.kill()
    for _ in range(6):
        with pytest.raises(errors.StoreUnavailable):
            await reader.read("XREAD", "BLOCK", LONG_MS, "STREAMS", TASKS, "$", block_ms=LONG_MS)
    pausing = asyncio.create_task(reader.read("XREAD", "BLOCK", LONG_MS, "STREAMS", TASKS, "$", block_ms=LONG_MS))
    await turns(3)
    assert not pausing.done()
    await reader.stop()
    assert await pausing is None
    await connection.close()


async def test_stop_cuts_the_read_when_the_server_hangs(servers: Servers) -> None:
    """When the server takes no UNBLOCK any more, stop closes the connection and the read ends with None."""
    server = servers.start()
    connection = await RedisConnection.open(f"{server.url}?socket_timeout=0.2")
    reader = connection.reader()
    waiting = await blocked(connection, reader)
    server.pause()
    await reader.stop()
    assert await waiting is None
    server.resume()
    await connection.close()


async def test_one_reader_serves_one_read(connection: RedisConnection) -> None:
    """A second read while one is pending is refused with advice, and the first goes on."""
    reader = connection.reader()
    waiting = await blocked(connection, reader)
    with pytest.raises(errors.InvalidRequest, match=r"another with reader\(\)"):
        await reader.read("XREAD", "BLOCK", 1, "STREAMS", TASKS, "$", block_ms=1)
    entry_id = await add(connection, 1)
    assert entry_ids(await waiting) == [entry_id]
    await reader.close()


async def test_closing_the_connection_ends_its_readers(redis_url: str) -> None:
    """Close stops every pending read, and no client of ours stays at the server."""
    with Raw(redis_url) as raw:
        before = clients(raw)
    connection = await RedisConnection.open(redis_url)
    readers = [connection.reader() for _ in range(3)]
    waiting = [
        asyncio.create_task(reader.read("XREAD", "BLOCK", LONG_MS, "STREAMS", TASKS, "$", block_ms=LONG_MS))
        for reader in readers
    ]
    with Raw(redis_url) as raw:
        await until(lambda: b"blocked_clients:3" in raw.execute("INFO", "clients"))
        await connection.close()
        assert await asyncio.gather(*waiting) == [None, None, None]
        await until(lambda: clients(raw) == before, what="our clients to be gone")


async def test_a_reader_belongs_to_one_loop(connection: RedisConnection) -> None:
    """A reader used from another event loop raises WrongLoop."""
    reader = connection.reader()

    async def elsewhere() -> None:
        with pytest.raises(errors.WrongLoop):
            await reader.read("XREAD", "BLOCK", 1, "STREAMS", TASKS, "$", block_ms=1)
        with pytest.raises(errors.WrongLoop):
            await reader.stop()

    await asyncio.to_thread(asyncio.run, elsewhere())
    await reader.close()
