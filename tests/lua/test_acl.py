"""A user of the server who may touch the keys of one namespace and nothing else: that is all that the store needs."""

from __future__ import annotations

import asyncio

import pytest

from agl_streams.config import Settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.errors import ServerRefused
from agl_streams.store import StreamStore
from tests.support.processes import ROOT
from tests.support.scenario import Scenario
from tests.support.servers import ALL_BINARIES, Server, Servers
from tests.support.waiting import until

# As the page of operations has it.
RULES = (
    "+@read +@write +@connection -@dangerous -function +function|list +function|load "
    "+fcall +fcall_ro +info +time +client|unblock"
)


@pytest.fixture(params=ALL_BINARIES)
def server(servers: Servers, request: pytest.FixtureRequest) -> Server:
    """A server that is somebody else's as well."""
    return servers.start(request.param, tcp=True)


def url_of_user(server: Server, pattern: str) -> str:
    """Make a user who is bound to a pattern of keys; how to connect as that one."""
    server.execute("ACL", "SETUSER", "agl", "on", ">pw", "resetkeys", f"~{pattern}", *RULES.split())
    return server.url.replace("redis://", "redis://agl:pw@")


async def test_a_user_of_the_namespaces_keys_can_do_everything(server: Server, settings: Settings) -> None:
    """Every command of a long history, blocked reads, and waiting."""
    url = url_of_user(server, f"agl:{{{settings.namespace}.*")
    async with await StreamStore.connect(url, settings=settings) as store:
        scenario = Scenario()
        scenario.use_clock(store)
        for step in scenario.steps():
            await step(store)
        store.functions(0).clock_us = None
        await store.retire_workers_once(0)
        rollout = await store.enqueue_rollout("for a blocked reader")
        consumer = RolloutConsumer(store, "w")
        assert await consumer.next(100) != []
        await store.update_attempt(rollout.rollout_id, "latest", "succeeded")
        assert len(await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=20)) == 1
        asking = asyncio.create_task(consumer.next(1))
        await until(lambda: "blocked_clients:0" not in str(server.execute("INFO", "clients")), what="a blocked reader")
        await consumer.close()
        assert await asking == []


async def test_keys_of_others_are_out_of_reach(server: Server, settings: Settings) -> None:
    """A user bound to another namespace is refused at connect, and has written nothing."""
    url = url_of_user(server, "agl:{another.*")
    with pytest.raises(ServerRefused, match="NOPERM"):
        await StreamStore.connect(url, settings=settings)
    assert server.execute("DBSIZE") == 0


def test_the_rules_are_those_of_the_documentation() -> None:
    """What the page of operations tells to set is what is tested here."""
    page = (ROOT / "docs" / "operations.md").read_text()
    assert f"ACL SETUSER agl on >password resetchannels ~agl:* {RULES}\n" in page
