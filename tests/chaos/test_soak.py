"""Long in the life of a namespace, as far as one has patience: ``SOAK_SECONDS`` of it, half an hour unless told."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from agl_streams import clock
from agl_streams.client import StoreClient
from agl_streams.keys import parse
from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.chaos.strikes import Chaos
from tests.support.chaos import events_later, steady_load, tally
from tests.support.chaos_processes import Crew, Member
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.leaks import all_keys
from tests.support.raw import Raw
from tests.support.servers import Server, free_port
from tests.support.waiting import until

SOAK_S = float(os.environ.get("SOAK_SECONDS", "1800"))
RUNNERS = 8
AHEAD = 16  # unfinished rollouts of each of the two clients: as many as half of the runners' places
WORK_MS = (20.0, 2_000.0)  # from less than a lease to twice one
MOMENTS = 500  # events between two strikes, at most: seconds
READ_AT_ONCE = 50
FOR_EVER = -1  # what PTTL says of a key that does not go by itself


class Siege(Chaos):
    """All strikes there are. Half of the runners work for a server, which is killed as well."""

    def __init__(self, store: StreamStore, crew: Crew, server: Server, runners: int) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._http = crew.server(self._port)
        super().__init__(store, crew, server, runners)

    def strikes(self) -> list[Callable[[], Awaitable[None]]]:
        """Those of any chaos, and one more."""
        return [*super().strikes(), self.kill_http_server]

    def start_runner(self) -> Member:
        """By turns beside the store and for the server."""
        return self._crew.runner("some_work", server=random.choice([None, self.url]))

    async def kill_http_server(self) -> None:
        """kill -9 of the HTTP server, calls and all."""
        self._http.kill()
        self._http = self._crew.server(self._port)

    async def end_http_server(self) -> int | None:
        """Let the HTTP server end; its exit status."""
        return await asyncio.to_thread(self._http.terminate)


@asynccontextmanager
async def client_of(url: str) -> AsyncGenerator[StoreClient]:
    """A client of a server that is being started."""
    client = StoreClient(url)
    await until(lambda: client.statistics(), what="the server")
    async with client:
        yield client


async def check_spans_are_read(store: StreamStore, ids: list[str]) -> None:
    """Every finished rollout's spans come back, whole."""
    for at in range(0, len(ids), READ_AT_ONCE):
        batch = ids[at : at + READ_AT_ONCE]
        found = await asyncio.gather(*(store.query_spans(rollout_id, "latest") for rollout_id in batch))
        assert {rollout_id: len(spans) for rollout_id, spans in zip(batch, found, strict=True)} == dict.fromkeys(
            batch, SPANS
        )


def check_no_key_is_left(store: StreamStore) -> None:
    """All keys are the namespace's, marks of requests go by themselves, and deleting its keys leaves nothing."""
    with Raw(store.url) as raw:
        keys = {key: parse(key) for key in all_keys(raw)}
        assert {parsed.namespace for parsed in keys.values()} == {store.settings.namespace}
        marks = [key for key, parsed in keys.items() if parsed.name.startswith(("live:claim:", "live:request:"))]
        times = raw.execute_many([("PTTL", key) for key in marks])
        assert [key for key, left in zip(marks, times, strict=True) if left == FOR_EVER] == []
        for pattern in (f"{store.functions(shard).keys.prefix}*" for shard in range(store.shards)):
            raw.execute("UNLINK", *raw.execute("KEYS", pattern))
        assert all_keys(raw) == set()


@pytest.mark.soak
@pytest.mark.timeout(SOAK_S + 1800)  # what the checks of some ten thousand rollouts take
async def test_a_siege(store: StreamStore, crew: Crew, server: Server) -> None:
    """Eight runners, and everything killed at random again and again: each rollout is finished once and can be read."""
    siege = Siege(store, crew, server, RUNNERS)
    end_s = clock.monotonic_s() + SOAK_S
    async with (
        client_of(siege.url) as client,
        steady_load(store, ahead=AHEAD, work_ms=WORK_MS) as direct,
        steady_load(client, ahead=AHEAD, work_ms=WORK_MS) as over_http,
    ):
        while clock.monotonic_s() < end_s:
            await events_later(store, random.randrange(1, MOMENTS))
            await siege.strike()
    siege.wake()
    ids = [*direct, *over_http]
    sys.stdout.write(f"{len(direct)} + {len(over_http)} rollouts, strikes: {dict(siege.done)}\n")
    await wait_until_done(store, ids)
    assert await siege.end_runners() == [0] * RUNNERS
    # A late span of a runner that slept revives its old attempt, until that is found lost once more.
    await wait_until_done(store, ids)
    assert (await siege.end_aggregator(), await siege.end_http_server()) == (0, 0)
    await check_invariants(store, ids, spans=SPANS)
    await check_spans_are_read(store, ids)
    sys.stdout.write(f"events: {dict(await tally(store))}\n")
    await store.close()
    check_no_key_is_left(store)
