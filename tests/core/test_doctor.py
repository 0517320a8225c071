"""The doctor: real faults of a server and a namespace, each found and told with what to do; nothing is changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agl_streams.config import Settings, load_settings
from agl_streams.doctor import Finding, examine
from agl_streams.keys import ShardKeys
from agl_streams.library import library
from agl_streams.store import StreamStore
from tests.support.command_line import Shell
from tests.support.leaks import all_keys
from tests.support.raw import Raw
from tests.support.servers import REDIS_7_0, Servers
from tests.support.spans import reward
from tests.support.waiting import until

LEASE_US = "30000000"


def by_level(findings: list[Finding], level: str) -> dict[str, Finding]:
    """The findings of a level by what was looked at."""
    return {one.check: one for one in findings if one.level == level}


async def watched(store: StreamStore) -> None:
    """The watchdog has just looked, and the log is folded."""
    for shard in range(store.shards):
        await store.expire_once(shard)
    await store.settle()


async def only(settings: Settings, level: str, check: str) -> Finding:
    """The one finding that is not ok; all others are."""
    findings = await examine(settings)
    assert {one.check: one.level for one in findings if one.level != "ok"} == {check: level}
    found = by_level(findings, level)[check]
    assert found.means
    assert found.todo
    return found


async def test_a_sound_namespace_has_no_finding(settings: Settings, store: StreamStore) -> None:
    """Where all is well each check says what it saw, and none warns."""
    await watched(store)
    findings = await examine(settings)
    assert [one for one in findings if one.level != "ok"] == []
    assert {
        "server", "persistence", "eviction", "memory", "replicas", "functions", "clocks", "namespace", "groups",
        "aggregator", "queue", "pending", "deadlines", "leases", "dead letters",
    } == {one.check for one in findings}  # fmt: skip


async def test_looking_changes_nothing(settings: Settings, store: StreamStore, redis_url: str) -> None:
    """No key, library or field is another after it, and a namespace that is not there is not made."""
    await store.enqueue_rollout(1)
    elsewhere = load_settings(redis_url=redis_url, namespace=f"{settings.namespace}-none")

    def everything() -> dict[bytes, bytes | None]:
        return {key: raw.execute("DUMP", key) for key in all_keys(raw)}

    with Raw(redis_url) as raw:
        before, libraries = everything(), raw.execute("FUNCTION", "LIST")
        await examine(settings)
        told = by_level(await examine(elsewhere), "warning")
        assert (everything(), raw.execute("FUNCTION", "LIST")) == (before, libraries)
    assert "there is no namespace" in told["namespace"].found


async def test_lost_functions_are_found(settings: Settings, store: StreamStore) -> None:
    """A library that was flushed, or whose code was changed, is a problem."""
    await watched(store)
    await store.connection.execute("FUNCTION", "FLUSH")
    assert "is missing" in (await only(settings, "problem", "functions")).found
    changed = library().source + "\n-- somebody was here\n"
    await store.connection.execute("FUNCTION", "LOAD", changed)
    assert "is not what this release has" in (await only(settings, "problem", "functions")).found
    await store.connection.execute("FUNCTION", "FLUSH")


@pytest.mark.parametrize(("stream", "group"), [("log", "aggregator"), ("tasks", "runners")])
async def test_a_destroyed_group_is_found(settings: Settings, store: StreamStore, stream: str, group: str) -> None:
    """It is named with its stream."""
    await watched(store)
    await store.connection.execute("XGROUP", "DESTROY", store.functions(0).keys.payload(stream), group)
    assert f":{stream} has no group {group}" in (await only(settings, "problem", "groups")).found


async def test_an_absent_aggregator_is_found(settings: Settings, store: StreamStore) -> None:
    """Events that nobody folds, when nobody has ever watched, are a problem; without work it is a warning."""
    assert "looked never" in (await only(settings, "warning", "aggregator")).found
    one = await store.start_rollout(1, lease_seconds=30)
    await store.add_span(reward(1, 1.0, rollout_id=one.rollout_id, attempt_id=one.attempt.attempt_id))
    assert "4 events not folded" in (await only(settings, "problem", "aggregator")).found
    await watched(store)
    assert by_level(await examine(settings), "problem") == {}


async def test_a_watchdog_that_left_is_found(settings: Settings, store: StreamStore) -> None:
    """One that has not looked for longer than a lease is absent, and what it should have ended is a problem."""
    await store.start_rollout(1, lease_seconds=30)
    await watched(store)
    keys = store.functions(0).keys
    hour_us = 3600 * 1_000_000
    ran = await store.connection.execute("HGET", keys.payload("live:watch"), "ran")
    assert isinstance(ran, bytes)
    await store.connection.execute("HSET", keys.payload("live:watch"), "ran", int(ran) - hour_us)
    assert "ago" in (await only(settings, "problem", "aggregator")).found
    deadlines = keys.payload("live:deadlines")
    (member,) = await members(store, deadlines)
    await store.connection.execute("ZADD", deadlines, int(ran) - hour_us, member)
    assert set(by_level(await examine(settings), "problem")) == {"aggregator", "deadlines"}


async def members(store: StreamStore, key: str) -> list[bytes]:
    """What a sorted set holds."""
    found: Any = await store.connection.execute("ZRANGE", key, 0, -1)
    return found


async def test_a_queue_that_nobody_serves_is_found(settings: Settings, store: StreamStore) -> None:
    """Rollouts that wait without a runner are told; once one is heard of they are not."""
    await store.enqueue_rollout(1)
    await watched(store)
    assert "1 wait" in (await only(settings, "warning", "queue")).found
    await store.update_worker("w")
    assert by_level(await examine(settings), "warning") == {}


async def test_a_trimmed_queue_is_found(settings: Settings, store: StreamStore) -> None:
    """Entries that somebody took from the stream are missed."""
    await store.enqueue_rollout(1)
    await watched(store)
    await store.connection.execute("XTRIM", store.functions(0).keys.tasks, "MAXLEN", 0)
    assert "1 rollouts wait, and the queue has 0" in (await only(settings, "problem", "queue")).found


async def test_entries_that_are_never_begun_are_found(settings: Settings, store: StreamStore) -> None:
    """Who holds them is named, escaped names as they are."""
    await store.enqueue_rollout(1)
    await store.update_worker("w ü")
    await watched(store)
    functions = store.functions(0)
    tasks = functions.keys.tasks
    await store.connection.execute("XREADGROUP", "GROUP", "runners", "w%20%C3%BC", "STREAMS", tasks, ">")
    held = {one.check: one for one in await examine(settings)}["pending"]
    assert (held.level, held.found) == ("ok", "w ü has 1")
    (entry,) = [entry for entry, _ in await entries(store, tasks)]
    await store.connection.execute("XCLAIM", tasks, "runners", "w%20%C3%BC", 0, entry, "IDLE", 60_000, "JUSTID")
    assert "w ü has 1" in (await only(settings, "warning", "pending")).found
    await functions.leave("w%20%C3%BC")


async def entries(store: StreamStore, stream: str) -> list[tuple[bytes, list[bytes]]]:
    """What a stream holds."""
    found: Any = await store.connection.execute("XRANGE", stream, "-", "+")
    return found


async def test_dead_letters_and_attempts_without_a_limit_are_found(settings: Settings, store: StreamStore) -> None:
    """A rollout that was given up and one that nothing would end are warnings."""
    await store.enqueue_rollout("poison")
    functions = store.functions(0)
    await store.connection.execute("XREADGROUP", "GROUP", "runners", "r", "STREAMS", functions.keys.tasks, ">")
    await functions.expire(LEASE_US, 0, 1)
    await functions.leave("r")
    await watched(store)
    assert "1 rollouts were given up" in (await only(settings, "warning", "dead letters")).found
    await store.start_rollout("with a lease", lease_seconds=30)
    await store.start_rollout("for ever")
    await watched(store)
    assert "1 of 2" in by_level(await examine(settings), "warning")["leases"].found


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [("schema", "99", "schema 99"), ("shards", "2", "AGL_SHARDS=1")],
)
async def test_a_namespace_that_does_not_fit_is_found(
    settings: Settings, store: StreamStore, field: str, value: str, told: str
) -> None:
    """A newer schema and another shard count are told with the way out."""
    await watched(store)
    await store.connection.execute("HSET", store.functions(0).keys.meta, field, value)
    found = by_level(await examine(settings), "problem")["namespace"]
    assert told in found.found
    assert found.todo


async def test_a_foreign_key_in_the_way_is_found(settings: Settings, redis_url: str) -> None:
    """A string where the namespace's hash goes is named, and left alone."""
    meta = ShardKeys(settings.namespace, 0).meta
    with Raw(redis_url) as raw:
        raw.execute("SET", meta, "mine")
        assert meta in by_level(await examine(settings), "problem")["namespace"].found
        assert raw.execute("GET", meta) == b"mine"


@pytest.mark.parametrize("binary", ["embedded", REDIS_7_0])
@pytest.mark.parametrize(
    ("config", "check", "level", "told"),
    [
        ({"appendonly": "no"}, "persistence", "problem", "appendonly is off"),
        ({"appendfsync": "no"}, "persistence", "warning", "appendfsync is no"),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "eviction", "problem", "allkeys-lru"),
        ({"maxmemory-policy": "volatile-ttl"}, "eviction", "warning", "volatile-ttl"),
        ({"maxmemory": "500kb"}, "memory", "problem", "of 0.5 MB"),
    ],
)
async def test_a_server_that_forgets_is_found(
    servers: Servers, binary: str, config: dict[str, str], check: str, level: str, told: str
) -> None:
    """Persistence, eviction and full memory are judged on servers that are set up so."""
    server = servers.start(binary, config)
    findings = await examine(load_settings(redis_url=server.url))
    assert [one.check for one in findings if one.level == "problem"] == ([check] if level == "problem" else [])
    assert told in by_level(findings, level)[check].found


async def test_a_failed_snapshot_is_found(servers: Servers) -> None:
    """A disk that does not take a snapshot is told before anything is lost: here a folder stands in its way."""
    server = servers.start(config={"dbfilename": "in-the-way"})
    (server.directory / "in-the-way").mkdir()
    server.execute("SET", "something", "to save")
    server.execute("BGSAVE")
    settings = load_settings(redis_url=server.url)

    async def failed() -> bool:
        return "the last snapshot failed" in {one.found for one in await examine(settings) if one.level == "warning"}

    assert await until(failed, what="a failed snapshot to be told")


async def test_missing_replicas_are_found(settings: Settings, store: StreamStore) -> None:
    """A server without the replicas that AGL_MIN_REPLICAS asks for is looked at all the same."""
    await watched(store)
    wanting = settings.model_copy(update={"min_replicas": 2})
    assert "0 connected, AGL_MIN_REPLICAS=2" in (await only(wanting, "problem", "replicas")).found


async def test_a_server_that_cannot_be_used_is_a_finding(servers: Servers) -> None:
    """A wrong password is told as a finding, without the password."""
    server = servers.start(config={"requirepass": "secret-1"}, tcp=True)
    url = server.url.replace("redis://", "redis://:secret-2@")
    (found,) = await examine(load_settings(redis_url=url))
    assert (found.check, found.level) == ("server", "problem")
    assert "secret" not in found.found


async def test_each_shard_is_looked_at(settings: Settings) -> None:
    """Of several shards each has its findings, under its name."""
    sharded = settings.model_copy(update={"shards": 3})
    async with await StreamStore.connect(settings=sharded) as store:
        await watched(store)
        await store.connection.execute("DEL", store.functions(1).keys.tasks)
        findings = await examine(sharded)
    assert {one.where for one in findings if one.check == "queue"} == {"shard 0", "shard 1", "shard 2"}
    assert [(one.check, one.where) for one in findings if one.level != "ok"] == [("groups", "shard 1")]


async def test_the_command_tells_people_and_scripts(settings: Settings, store: StreamStore) -> None:
    """Exit code 0 without a problem and 1 with one; people get lines, scripts a list."""
    shell = Shell(settings)
    await watched(store)
    lines = shell.lines("doctor")
    assert all(line.startswith("ok ") for line in lines)
    await store.connection.execute("XGROUP", "DESTROY", store.functions(0).keys.log, "aggregator")
    sick = shell.run("doctor", "--json")
    assert (sick.returncode, sick.stderr) == (1, "")
    (problem,) = [one for one in json.loads(sick.stdout) if one["level"] == "problem"]
    assert set(problem) == {"check", "level", "found", "means", "todo", "where"}
    shown = shell.run("doctor")
    assert (shown.returncode, shown.stderr) == (1, "")
    assert problem["todo"] in shown.stdout
