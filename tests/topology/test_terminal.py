"""The doctor and dead letters on a cluster: every primary is looked at once, every shard as on one server."""

from __future__ import annotations

import asyncio

from agl_streams.config import Settings
from agl_streams.doctor import examine
from agl_streams.store import StreamStore
from tests.support.command_line import run
from tests.support.topologies import PRIMARIES
from tests.topology.conftest import SHARDS
from tests.topology.support import id_in_shard


async def test_each_primary_and_each_shard_is_looked_at(store: StreamStore, settings: Settings) -> None:
    """A sound cluster has no problem; a group that is destroyed on one of its nodes is found there."""
    for shard in range(SHARDS):
        await store.expire_once(shard)
    findings = await examine(settings)
    assert [one for one in findings if one.level == "problem"] == []
    assert len([one for one in findings if one.check == "functions"]) == PRIMARIES
    assert len([one for one in findings if one.check == "queue"]) == SHARDS
    await store.connection.execute("XGROUP", "DESTROY", store.functions(2).keys.log, "aggregator")
    sick = [one for one in await examine(settings) if one.level == "problem"]
    assert [(one.check, one.where) for one in sick] == [("groups", "shard 2")]


async def test_dead_letters_of_all_nodes_are_one_list(store: StreamStore, settings: Settings) -> None:
    """What was given up on each shard is on one list and can be put back; a wrong shard count is told."""
    names = [id_in_shard(store, shard) for shard in range(SHARDS)]
    for shard, name in enumerate(names):
        await store.enqueue_rollout({"of": shard}, rollout_id=name)
        functions = store.functions(shard)
        await functions.execute("XREADGROUP", "GROUP", "runners", "r", "STREAMS", functions.keys.tasks, ">")
        await functions.expire("30000000", 0, 1)
        await functions.leave("r")
    assert sorted(one.rollout_id for one in await store.query_dead_letters()) == sorted(names)
    flags = ("--redis-url", settings.redis_url or "", "--namespace", settings.namespace)
    refused = await asyncio.to_thread(run, "dead", "ls", *flags)
    assert refused.returncode == 2
    assert "AGL_SHARDS" in refused.stderr
    for name in names:
        await store.requeue_dead_letter(name)
    assert (await store.query_dead_letters()).total == 0
    assert {one.status for one in await store.query_rollouts()} == {"requeuing"}
