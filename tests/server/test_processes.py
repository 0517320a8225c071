"""The server as processes: several on one port, killed under load, stopped in order, slow and greedy clients."""

from __future__ import annotations

import asyncio
import io
import os
import resource
import signal
from collections.abc import AsyncGenerator, Generator
from typing import Any

import aiohttp
import pytest

from agl_streams.client import StoreClient
from agl_streams.config import Settings, child_environment
from agl_streams.models import Span
from agl_streams.server import protocol
from agl_streams.server.routes_service import MAX_TAILS
from agl_streams.server.serving import MOST_FILES, SPARE_FILES
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.served import Served, memory_of, serve
from tests.server.support import Api, sent_events
from tests.support.processes import ProcessGroup, is_alive
from tests.support.waiting import until

MIB = 1024 * 1024


async def rollout_once(client: StoreClient, number: int) -> None:
    """The whole life of one rollout, whichever of those in the queue the dequeue is given."""
    await client.enqueue_rollout({"number": number})
    taken = await client.dequeue_rollout(f"w{number % 7}")
    assert taken is not None
    ids = (taken.rollout_id, taken.attempt.attempt_id)
    spans = [
        Span.from_attributes(attributes={"n": n}, rollout_id=ids[0], attempt_id=ids[1], span_id=str(n))
        for n in range(4)
    ]
    assert len(await client.add_many_spans(spans[:3], assign_sequence=True)) == 3
    assert await client.add_span(spans[3], assign_sequence=True) is not None
    await client.update_attempt(*ids, status="succeeded", metadata={"number": number})


async def test_a_killed_server_process_loses_and_doubles_nothing(
    processes: ProcessGroup, settings: Settings, store: StreamStore
) -> None:
    """Two processes serve; one after the other is killed under load, and every rollout is done exactly once."""
    served = serve(processes, settings, "--workers", "2", "--no-aggregator")
    async with StoreClient(served.url, settings) as client:
        await client.statistics()
        numbers = iter(range(240))

        async def work() -> None:
            for number in numbers:
                await rollout_once(client, number)

        async def killings() -> None:
            for after, name in ((40, "server-0"), (120, "server-1")):
                await until(lambda after=after: done_at_least(store, after), what=f"{after} rollouts to be done")
                pid = served.children(name)[-1]
                os.kill(pid, signal.SIGKILL)

        await asyncio.gather(killings(), *(work() for _ in range(8)))
    rollouts = await store.query_rollouts()
    assert sorted(rollout.input["number"] for rollout in rollouts) == list(range(240))
    assert {rollout.status for rollout in rollouts} == {"succeeded"}
    assert set((await store.finished_counts()).values()) == {1}
    for rollout in rollouts:
        assert len(await store.query_attempts(rollout.rollout_id)) == 1
        assert [span.sequence_id for span in await store.query_spans(rollout.rollout_id)] == [1, 2, 3, 4]
    assert len(served.events("child_died")) == 2
    assert served.process.terminate() == 0


async def done_at_least(store: StreamStore, count: int) -> bool:
    return (await store.query_rollouts(status_in=["succeeded"], limit=1)).total >= count


async def test_a_second_server_on_the_port_fails_at_its_start(processes: ProcessGroup, settings: Settings) -> None:
    """A port that is taken, by several processes of ours too, is one clear line and exit status 2."""
    served = serve(processes, settings, "--workers", "2", "--no-aggregator")
    port = served.url.rpartition(":")[2]
    for workers in ("1", "2"):
        second = processes.module(
            "agl_streams.cli", "serve", "--port", port, "--workers", workers, env=child_environment(settings)
        )
        assert second.wait() == 2
        assert f"cannot listen on 127.0.0.1:{port}: another process listens there" in second.output
        assert "Traceback" not in second.output
    async with aiohttp.ClientSession(served.url) as session:
        assert (await Api(session).get("health")).status == 200
    assert served.process.terminate() == 0


async def test_a_stopping_server_ends_what_waits_and_finishes_what_runs(
    processes: ProcessGroup, settings: Settings, store: StreamStore
) -> None:
    """On SIGTERM a waiting call is answered 503, a tail is told good-bye, and the process ends with status 0."""
    served = serve(processes, settings, "--no-aggregator")
    started = await store.start_rollout(1)
    async with aiohttp.ClientSession(served.url) as session:
        api = Api(session)
        body = {"rollout_ids": [started.rollout_id], "timeout": None}
        waiting = asyncio.create_task(api.post("waits/rollouts", body))
        dequeuing = asyncio.create_task(api.post("queues/rollouts/dequeue", {"wait": 100}))
        response = await session.get("/v1/agl/events")
        stream = sent_events(response)
        await anext(stream)
        await until(lambda: blocked(store, 3), what="three blocked reads")
        served.process.signal(signal.SIGTERM)
        for task in (waiting, dequeuing):
            reply = await task
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert (await anext(stream)).name == "closing"
        response.release()
    assert served.process.wait() == 0
    assert '"server_stopped"' in served.process.output


async def blocked(store: StreamStore, count: int) -> bool:
    info: Any = await store.connection.execute("INFO", "clients")
    return f"blocked_clients:{count}".encode() in info


async def test_the_server_folds_by_itself_and_starts_its_aggregator_again(
    processes: ProcessGroup, settings: Settings, store: StreamStore
) -> None:
    """The aggregator runs as a child: it folds, it is started again when it dies, and it ends with the server."""
    served = serve(processes, settings)
    served.process.printed('"aggregator_started"')
    first = served.children("aggregator")[-1]
    os.kill(first, signal.SIGKILL)
    await until(lambda: len(served.events("aggregator_started")) == 2, what="another aggregator")
    started = await store.start_rollout(1)
    span = Span.from_attributes(attributes={}, rollout_id=started.rollout_id, attempt_id=started.attempt.attempt_id)
    await store.add_span(span, assign_sequence=True)

    async def folded() -> bool:
        return (await store.rollout_sums(started.rollout_id)).spans == 1

    await until(folded, what="the span to be folded")
    assert served.process.terminate() == 0
    await until(lambda: not is_alive(served.children("aggregator")[-1]), what="the aggregator to end")


async def test_a_killed_server_leaves_no_child(processes: ProcessGroup, settings: Settings) -> None:
    """When the process that started them is killed, server processes and aggregator end by themselves."""
    served = serve(processes, settings, "--workers", "2")
    served.process.printed('"aggregator_started"')
    pids = [served.children(name)[-1] for name in ("server-0", "server-1", "aggregator")]
    assert all(map(is_alive, pids))
    served.process.kill()
    await until(lambda: not any(map(is_alive, pids)), what="the children to end")


@pytest.fixture
async def small_server(processes: ProcessGroup, settings: Settings) -> AsyncGenerator[Served]:
    """A server process of its own, whose memory can be looked at."""
    served = serve(processes, settings, "--no-aggregator")
    async with aiohttp.ClientSession(served.url) as session:
        await Api(session).get("/ready")
    yield served
    assert served.process.terminate() == 0


@pytest.fixture
def open_files() -> Generator[int]:
    """How many files this process may open, which is raised as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield wanted
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_idle_tails_take_little_memory(open_files: int, small_server: Served) -> None:
    """As many idle tails as a process takes cost a bounded amount each; one more is put off, and others are served."""
    before = memory_of(small_server.process.pid)
    count = min(MAX_TAILS, open_files - 2 * SPARE_FILES)
    writers: list[asyncio.StreamWriter] = []
    while len(writers) < count:
        some = min(500, count - len(writers))
        writers += await asyncio.gather(*(idle_tail(small_server.url) for _ in range(some)))
    grown = memory_of(small_server.process.pid) - before
    assert grown < count * 64 * 1024, f"{grown / count:,.0f} bytes a tail"
    async with aiohttp.ClientSession(small_server.url) as session:
        api = Api(session)
        assert (await api.get("/ready")).status == 200
        if count == MAX_TAILS:
            assert (await api.get("events")).status == 503
        for writer in writers:
            writer.close()


async def idle_tail(url: str) -> asyncio.StreamWriter:
    """The connection of a tail that has begun."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /v1/agl/events HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    await reader.readuntil(b": alive\n")
    return writer


async def test_huge_bodies_take_bounded_memory(small_server: Served) -> None:
    """Bodies of a hundred MB, named or not, are refused without being kept."""
    before = memory_of(small_server.process.pid, "VmHWM")

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield b" " * MIB

    async with aiohttp.ClientSession(small_server.url) as session:
        api = Api(session)
        for data in (io.BytesIO(b" " * 100 * MIB), pieces(), pieces()):
            reply = await api.send("POST", "spans", data=data, headers={"content-type": "application/json"})
            assert reply.status == 413
        assert (await api.get("/ready")).status == 200
    grown = memory_of(small_server.process.pid, "VmHWM") - before
    assert grown < 2 * 64 * MIB, f"{grown / MIB:.0f} MB"


async def test_a_head_without_end_is_cut_off(server_url: str) -> None:
    """A request whose head grows and grows is refused, and its connection closed."""
    host, port = server_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /v1/agl/health HTTP/1.1\r\nhost: x\r\n")
    for number in range(100):
        writer.write(b"x-%d: %b\r\n" % (number, b"y" * 1000))
    try:
        answer = await reader.read()
    except ConnectionResetError:
        answer = b""
    # A close while the client still sends is a reset, and the kernel then drops an answer that was not read yet.
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_requests_that_trickle_are_cut_off(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that send nothing, half a head, or a body drop by drop are cut, and others are answered meanwhile."""
    monkeypatch.setattr(protocol, "PATIENCE_S", 0.3)
    async with serving(settings) as url, aiohttp.ClientSession(url) as session:
        host, port = url.removeprefix("http://").split(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(60)]
        beginnings = (
            b"",
            b"GET /v1/agl/health HTTP/1.1\r\nhost: x\r\nx-slow: ",
            b"POST /v1/agl/spans HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
        )
        for number, (_, writer) in enumerate(connections):
            writer.write(beginnings[number % 3])
        assert (await Api(session).get("/ready")).status == 200
        for reader, writer in connections:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
        assert (await Api(session).get("health")).status == 200
