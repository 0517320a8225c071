"""What a test may not leave in the server: keys that ``keys.py`` does not know, consumers, pending entries."""

from __future__ import annotations

from agl_streams.errors import ForeignKey
from agl_streams.keys import parse
from tests.support.addresses import server_urls
from tests.support.raw import Raw

# The functions read their groups under these fixed names and leave nothing pending behind them.
CONSUMERS_OF_FUNCTIONS = {b"fold", b"claim"}
STREAM_NAMES = ("log", "tasks", "finished", "dead")
SCAN_COUNT = 1_000


def all_keys(raw: Raw) -> set[bytes]:
    """Every key of the database."""
    keys: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, page = raw.execute("SCAN", cursor, "COUNT", SCAN_COUNT)
        keys.update(page)
        if cursor == b"0":
            return keys


def remove_namespace(url: str, namespace: str) -> None:
    """Remove every key of a namespace."""
    for server in server_urls(url):
        with Raw(server) as raw:
            # One by one: in a cluster the keys of two shards are never in one command.
            raw.execute_many([("UNLINK", key) for key in all_keys(raw) if parse(key).namespace == namespace])


def foreign_keys(keys: set[bytes]) -> list[str]:
    """A line for each key that no row of the key table describes."""
    lines: list[str] = []
    for key in sorted(keys):
        try:
            parse(key)
        except ForeignKey as error:
            lines.append(str(error))
    return lines


def left_in_groups(raw: Raw, keys: set[bytes]) -> list[str]:
    """A line for each consumer that was not retired and each group with pending entries."""
    lines: list[str] = []
    for key in sorted(keys):
        if not key.endswith(tuple(f":{name}".encode() for name in STREAM_NAMES)):
            continue
        for group in map(_fields, raw.execute("XINFO", "GROUPS", key)):
            name = group[b"name"]
            if group[b"pending"]:
                lines.append(f"{key!r}: group {name!r} has {group[b'pending']} pending entries")
            consumers = {_fields(consumer)[b"name"] for consumer in raw.execute("XINFO", "CONSUMERS", key, name)}
            lines += [f"{key!r}: consumer {left!r} is left" for left in sorted(consumers - CONSUMERS_OF_FUNCTIONS)]
    return lines


def _fields(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
