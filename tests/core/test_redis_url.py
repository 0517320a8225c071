"""URLs are taken apart, whatever they lead to; slots of keys and the map of slots are read."""

from __future__ import annotations

import pytest

from agl_streams.keys import ShardKeys
from agl_streams.redis_url import parse
from agl_streams.slots import SlotRange, read_slots, slot_of_command, slot_of_key
from agl_streams.wire import Arg, Place, Reply
from tests.support.servers import Servers

META = ShardKeys("t", 3).meta


@pytest.mark.parametrize(
    ("url", "seeds", "server", "service"),
    [
        ("redis://u:p@h:1/2?socket_timeout=1", ["redis://u:p@h:1/2?socket_timeout=1"], None, ""),
        ("redis+cluster://u:p@a:1,b?x=1", ["redis://u:p@a:1?x=1", "redis://u:p@b?x=1"], None, ""),
        ("rediss+cluster://[::1]:1,[::2]:2/0", ["rediss://[::1]:1", "rediss://[::2]:2"], None, ""),
        ("redis+sentinel://u:p@a,b:2/main/5", ["redis://a:26379", "redis://b:2"], "redis://u:p@a/5", "main"),
        (
            "rediss+sentinel://:p%40@[::1]:1/my%20db?sentinel_password=s%2F&x=1",
            ["rediss://:s%2F@[::1]:1?x=1"],
            "rediss://:p%40@[::1]:1?x=1",
            "my db",
        ),
    ],
)
def test_a_url_is_taken_apart(url: str, seeds: list[str], server: str | None, service: str) -> None:
    """Each seed gets user and options of the whole; sentinels get those of their own, and their usual port."""
    found = parse(url)
    assert list(found.seeds) == seeds
    assert (found.server, found.service) == (server or seeds[0], service)
    assert "p@" not in found.public
    assert "?" not in found.public


@pytest.mark.parametrize("key", ["foo", "{user}.a", "a{}b", "a{b", "{}", "x{é}y", META])
def test_a_slot_is_the_servers(servers: Servers, key: str) -> None:
    """The slot of a key is the one that the server computes."""
    server = servers.start(config={"cluster-enabled": "yes"}, tcp=False)
    assert slot_of_key(key) == slot_of_key(key.encode()) == server.execute("CLUSTER", "KEYSLOT", key)


@pytest.mark.parametrize(
    "command",
    [
        ("XLEN", META),
        (b"HGET", META.encode(), "n"),
        ("XINFO", "GROUPS", META),
        ("XREAD", "COUNT", 1, "BLOCK", 5, "STREAMS", META, "$"),
        ("XREADGROUP", "GROUP", "runners", "STREAMS-like", "STREAMS", META, ">"),
    ],
)
def test_the_key_of_a_command_is_known(command: tuple[Arg, ...]) -> None:
    """Where the key stands is known for every plain command that the store sends."""
    assert slot_of_command(command) == slot_of_key(META)


def test_a_command_without_a_key_has_no_slot() -> None:
    """Such a command may go anywhere."""
    assert slot_of_command(("PING",)) is None
    assert slot_of_command((b"INFO", "server")) is None


def test_a_map_of_slots_is_read() -> None:
    """A node without a host is at the host that was asked; one of unknown name is left out."""
    reply: Reply = [
        [0, 1, [b"10.0.0.1", 1, b"id"], [b"10.0.0.2", 2, b"id"], [b"?", 3, b"id"]],
        [2, 3, [None, 4, b"id"], [b"", 5, b"id"]],
        [4, 5, [b"?", 6, b"id"]],
    ]
    assert read_slots(reply, Place("asked", 9)) == [
        SlotRange(0, 1, Place("10.0.0.1", 1), (Place("10.0.0.2", 2),)),
        SlotRange(2, 3, Place("asked", 4), (Place("asked", 5),)),
    ]
