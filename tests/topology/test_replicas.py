"""Writes that count once replicas have them: AGL_MIN_REPLICAS with a real replica that is there, hangs, and is back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from agl_streams import errors
from agl_streams.config import Settings, load_settings
from agl_streams.store import StreamStore
from tests.support.servers import ALL_BINARIES, EMBEDDED, Server, Servers
from tests.support.topologies import pair
from tests.support.waiting import until

TIMEOUT_S = 0.5  # a replica that is well has more than enough of it on a busy machine
LONG_S = 20.0


@pytest.fixture
def binary() -> str:
    """The server that a test uses unless it says otherwise."""
    return EMBEDDED


@pytest.fixture
def servers_of_pair(binary: str, servers: Servers) -> tuple[Server, Server]:
    """A primary and its replica."""
    return pair(servers, binary)


@pytest.fixture
def primary(servers_of_pair: tuple[Server, Server]) -> Server:
    """The primary."""
    return servers_of_pair[0]


@pytest.fixture
def replica(servers_of_pair: tuple[Server, Server]) -> Server:
    """Its replica."""
    return servers_of_pair[1]


@pytest.fixture
def settings(primary: Server, tmp_path: Path) -> Settings:
    """Settings that ask for one replica."""
    return load_settings(
        redis_url=primary.url,
        namespace="t-replicas",
        data_dir=tmp_path / "data",
        min_replicas=1,
        replica_timeout_seconds=TIMEOUT_S,
    )


@pytest.mark.parametrize("binary", ALL_BINARIES)
async def test_a_write_that_no_replica_acknowledges_is_an_error(store: StreamStore, replica: Server) -> None:
    """While the replica hangs a write fails, however often it is repeated; once it goes on, the same write succeeds."""
    await store.enqueue_rollout("before", rollout_id="ro-before")
    replica.pause()
    with pytest.raises(errors.NotReplicated):
        await store.enqueue_rollout("after", rollout_id="ro-after")
    with pytest.raises(errors.NotReplicated) as caught:  # it finds the rollout there, and writes nothing to wait for
        await store.enqueue_rollout("after", rollout_id="ro-after")
    for part in ("0 replicas", f"AGL_REPLICA_TIMEOUT_SECONDS={TIMEOUT_S:g}", "AGL_MIN_REPLICAS=1", "may be repeated"):
        assert part in str(caught.value)
    replica.resume()
    await until(lambda: _acknowledged(store, "ro-after"), what="the replica to have it")
    assert [one.rollout_id for one in await store.query_rollouts()] == ["ro-before", "ro-after"]


async def test_a_repeat_on_a_new_connection_waits_as_well(
    store: StreamStore, settings: Settings, replica: Server
) -> None:
    """A write that another process has made before, and that changes nothing now, is still waited for."""
    replica.pause()
    with pytest.raises(errors.NotReplicated):
        await store.enqueue_rollout("x", rollout_id="ro-x")
    replica.resume()
    async with await StreamStore.connect(settings=settings) as other:
        replica.pause()
        with pytest.raises(errors.NotReplicated):
            await other.enqueue_rollout("x", rollout_id="ro-x")
    replica.resume()


async def test_reads_do_not_wait_for_replicas(settings: Settings, primary: Server, replica: Server) -> None:
    """While writes wait for a replica that hangs, reads are answered; a write is acknowledged as soon as it goes on."""
    patient = settings.model_copy(update={"replica_timeout_seconds": LONG_S})
    async with await StreamStore.connect(settings=patient) as store:
        replica.pause()
        writing = [asyncio.create_task(store.enqueue_rollout(number)) for number in range(5)]
        await until(lambda: b"blocked_clients:5" in cast("bytes", primary.execute("INFO", "clients")))
        assert len(await store.query_rollouts()) == len(writing)
        assert not any(task.done() for task in writing)
        replica.resume()
        await asyncio.gather(*writing)


async def test_without_the_setting_nothing_waits(settings: Settings, primary: Server) -> None:
    """With AGL_MIN_REPLICAS=0 no command more is sent than without replicas."""
    async with await StreamStore.connect(settings=settings.model_copy(update={"min_replicas": 0})) as store:
        primary.execute("CONFIG", "RESETSTAT")
        await store.enqueue_rollout("x")
        assert b"cmdstat_wait:" not in cast("bytes", primary.execute("INFO", "commandstats"))
        assert primary.execute("EXISTS", store.functions(0).keys.payload("live:mark")) == 0


async def _acknowledged(store: StreamStore, rollout_id: str) -> bool:
    try:
        await store.enqueue_rollout("after", rollout_id=rollout_id)
    except errors.NotReplicated:
        return False
    return True
