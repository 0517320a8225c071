"""The log as server-sent events: order, resuming, filters, slow readers, many readers, the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from agl_streams.config import Settings
from agl_streams.models import AttemptedRollout, EnqueueRolloutRequest, Span
from agl_streams.server import asgi
from agl_streams.server.cursor import Cursor
from agl_streams.server.events import RING, EventHub, Filter
from agl_streams.server.sse import server_sent_events
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.server.support import Api, Sent, next_events, pairs, sent_events
from tests.support.raw import ask
from tests.support.waiting import until


@asynccontextmanager
async def tail(api: Api, *, last: str | None = None, **query: Any) -> AsyncGenerator[AsyncGenerator[Sent]]:
    """A reader that is known to be there: its first sign of life has come."""
    headers = {} if last is None else {"last-event-id": last}
    async with api.session.get("/v1/agl/events", params=pairs(query), headers=headers) as response:
        stream = sent_events(response)
        assert (await anext(stream)).data is None
        yield stream


async def test_a_reader_hears_of_what_happens_from_now_on(api: Api, direct: StreamStore) -> None:
    """Each event is told once, in order, as the log has it, and what was before is not."""
    await direct.enqueue_rollout("before")
    async with tail(api) as stream:
        started = await direct.start_rollout({"q": 1}, worker_id="w")
        await direct.update_attempt(started.rollout_id, "latest", status="failed")
        found = await next_events(stream, 3)
    assert [sent.data["type"] for sent in found] == ["rollout_started", "attempt_started", "attempt_ended"]
    assert [sent.data["n"] for sent in found] == [2, 3, 4]
    assert list(found[0].data) == ["shard", "id", "type", "n", "time", "fields"]
    assert [sent.id for sent in found] == [sent.data["id"] for sent in found]
    assert {sent.rollout_id for sent in found} == {started.rollout_id}
    assert found[0].data["time"] == started.start_time
    assert found[2].data["fields"]["to"] == "failed"


async def test_a_reader_may_begin_in_the_past(api: Api, direct: StreamStore) -> None:
    """From the beginning or from any event on, the past is told first and then what happens, without a gap."""
    made = [(await direct.enqueue_rollout(number)).rollout_id for number in range(3)]
    async with tail(api, after="0") as stream:
        past = await next_events(stream, 3)
        made.append((await direct.enqueue_rollout(3)).rollout_id)
        assert [sent.rollout_id for sent in [*past, *await next_events(stream, 1)]] == made
    async with tail(api, after=past[0].id) as stream:
        assert [sent.rollout_id for sent in await next_events(stream, 3)] == made[1:]


async def test_a_reader_that_comes_back_goes_on_where_it_was(api: Api, direct: StreamStore) -> None:
    """With Last-Event-ID, again and again while others write, every event is told exactly once; the header wins."""

    async def write() -> list[str]:
        return [(await direct.enqueue_rollout(number)).rollout_id for number in range(200)]

    async with tail(api) as stream:
        writing = asyncio.create_task(write())
        (first,) = await next_events(stream, 1)
    heard, last = [first], first.id
    while len(heard) < 200:
        async with tail(api, last=last, after="0") as stream:
            found = await next_events(stream, min(37, 200 - len(heard)))
        heard += found
        last = found[-1].id
    assert [sent.rollout_id for sent in heard] == await writing


async def test_a_reader_hears_only_what_it_asks_for(api: Api, direct: StreamStore) -> None:
    """Filters by type and by rollout hold for the past and the present, and join."""
    one, other = [(await direct.start_rollout(number)).rollout_id for number in range(2)]
    async with (
        tail(api, after="0", type=["attempt_started", "attempt_ended"], rollout_id=one) as narrow,
        tail(api, type="attempt_ended") as ended,
        tail(api, rollout_id=[one, other]) as both,
    ):
        for rollout_id in (other, one):
            await direct.update_attempt(rollout_id, "latest", status="succeeded")
        await direct.enqueue_rollout("nobody asks for this one")
        heard = await next_events(narrow, 2)
        assert [(sent.data["type"], sent.rollout_id) for sent in heard] == [
            ("attempt_started", one),
            ("attempt_ended", one),
        ]
        assert [sent.rollout_id for sent in await next_events(ended, 2)] == [other, one]
        assert [sent.rollout_id for sent in await next_events(both, 2)] == [other, one]


async def test_all_shards_are_told_in_the_order_of_time(settings: Settings) -> None:
    """With several shards one cursor holds a place in each, at every server process, and the past is in time order."""
    several = settings.model_copy(update={"shards": 3})
    async with (
        await StreamStore.connect(settings=several) as store,
        serving(several) as url,
        serving(several) as other_url,
        aiohttp.ClientSession(url) as session,
        aiohttp.ClientSession(other_url) as other_session,
    ):
        made = [(await store.enqueue_rollout(number)).rollout_id for number in range(30)]
        async with tail(Api(session), after="0") as stream:
            past = await next_events(stream, 30)
            live = [(await store.enqueue_rollout(number)).rollout_id for number in range(30)]
            found = await next_events(stream, 30)
        assert [sent.rollout_id for sent in past] == made
        assert sorted(sent.rollout_id for sent in found) == sorted(live)
        for shard in range(3):
            numbers = [sent.data["n"] for sent in [*past, *found] if sent.data["shard"] == shard]
            assert numbers == list(range(1, len(numbers) + 1))
        async with tail(Api(other_session), last=past[9].id) as stream:
            assert [sent.rollout_id for sent in await next_events(stream, 20)] == made[10:]
        assert past[9].id.count(",") == 2


@pytest.mark.parametrize("place", ["x", "1-1,2-2", "5", "-1", "1-1-1"])
async def test_a_place_that_is_none_is_400(api: Api, place: str) -> None:
    """A cursor that this log cannot have is refused."""
    reply = await api.get("events", after=place)
    assert reply.status == 400
    assert "no place in a log of 1 shards" in reply.detail


async def test_a_slow_reader_is_told_where_to_resume(store: StreamStore) -> None:
    """A reader that the ring has overtaken hears that it fell behind, with the cursor behind what it has read."""
    hub = EventHub(store.connection, [store.functions(0).keys.log])
    pieces = server_sent_events(hub, Filter(), None)
    await anext(pieces)
    first = await store.enqueue_rollout(0)
    assert first.rollout_id.encode() in await anext(pieces)
    for _ in range(RING // 1000 + 1):
        await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=0)] * 1000)
    await until(lambda: hub.published > RING, what="the ring to be full")
    told = (await anext(pieces)).decode()
    assert told.startswith("event: fell_behind\n")
    place = told.split("id: ")[1].split("\n")[0]
    assert f'data: {{"resume":"{place}"}}' in told
    with pytest.raises(StopAsyncIteration):
        await anext(pieces)
    assert hub.tails == 0
    again = server_sent_events(hub, Filter(), Cursor.parse(place, 1))
    await anext(again)
    assert b'"n":2,' in await anext(again)
    await again.aclose()
    await hub.close()


async def test_a_reader_of_the_past_may_be_as_slow_as_it_likes(store: StreamStore) -> None:
    """A reader that catches up reads on in the log for as long as the log outgrows the ring, and misses nothing."""
    hub = EventHub(store.connection, [store.functions(0).keys.log])
    await store.enqueue_rollout("first")
    pieces = server_sent_events(hub, Filter(), Cursor.beginning(1))
    await anext(pieces)
    seen = (await anext(pieces)).count(b"data: ")
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=0)] * (RING + 100))
    await until(lambda: hub.published > RING, what="the ring to be full")
    while seen < RING + 101:
        seen += (await anext(pieces)).count(b"data: ")
    assert seen == RING + 101
    await pieces.aclose()
    await hub.close()


async def test_readers_that_go_leave_nothing(api: Api, direct: StreamStore) -> None:
    """One blocked read serves all readers, it ends with the last of them, and begins again with the next."""

    def blocked() -> int:
        info: bytes = ask(direct.url, "INFO", "clients")
        return int(info.split(b"blocked_clients:")[1].split()[0])

    for _ in range(2):
        async with tail(api), tail(api), tail(api):
            await until(lambda: blocked() == 1, what="one blocked read")
        await until(lambda: blocked() == 0, what="no blocked read")


async def test_a_stopping_server_says_good_bye(settings: Settings, direct: StreamStore) -> None:
    """When the server stops, readers get the cursor to go on from elsewhere, and the stream ends."""
    async with aiohttp.ClientSession() as session:
        async with serving(settings) as url:
            response = await session.get(f"{url}/v1/agl/events")
            stream = sent_events(response)
            await anext(stream)
            await direct.enqueue_rollout(1)
            (heard,) = await next_events(stream, 1)
        (last,) = await next_events(stream, 1)
        assert (last.name, last.data, last.id) == ("closing", {"resume": heard.id}, heard.id)
        assert await response.content.read() == b""
        response.release()


async def test_a_thousand_readers_hear_of_one_event(api: Api, server_url: str, direct: StreamStore) -> None:
    """Idle readers by the thousand do not keep the server from answering, and all hear of what happens."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        responses = await asyncio.gather(*(session.get(f"{server_url}/v1/agl/events") for _ in range(1000)))
        streams = [sent_events(response) for response in responses]
        await asyncio.gather(*(anext(stream) for stream in streams))
        assert (await api.get("/ready")).status == 200
        rollout = await direct.enqueue_rollout(1)
        heard = await asyncio.gather(*(next_events(stream, 1) for stream in streams))
        assert {sent.rollout_id for (sent,) in heard} == {rollout.rollout_id}
        for response in responses:
            response.close()


async def test_a_reader_that_stops_reading_is_cut_off(
    settings: Settings, store: StreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that takes nothing for a while loses its connection, and with it what was kept for it."""
    monkeypatch.setattr(asgi, "STALLED_S", 0.3)
    started = await store.start_rollout(1)
    for batch in range(10):
        ids = [f"{batch}-{number}-" + "x" * 240 for number in range(200)]
        await store.add_many_spans([span_of(started, span_id) for span_id in ids], assign_sequence=True)
    async with serving(settings, send_buffer=8192) as url:
        host, port = url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET /v1/agl/events?after=0 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200 OK")
        await until(lambda: no_blocked_read(store), what="the tail to end")
        received = 0
        while piece := await loop.sock_recv(client, 2**20):
            received += len(piece)
        assert received < 300_000
        client.close()


def span_of(attempted: AttemptedRollout, span_id: str) -> Span:
    ids: dict[str, Any] = {"rollout_id": attempted.rollout_id, "attempt_id": attempted.attempt.attempt_id}
    return Span.from_attributes(attributes={}, span_id=span_id, **ids)


async def no_blocked_read(store: StreamStore) -> bool:
    info: bytes = ask(store.url, "INFO", "clients")
    return b"blocked_clients:0" in info
