"""Which node of a cluster a command goes to: the place of its key, the slot of the key, the map of slots. Pure."""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from agl_streams.wire import Arg, Place, Reply

SLOTS: Final = 16384

_FIRST: Final = 1  # the key follows the command's name, unless it is told below
_PLACES: Final[Mapping[str, int | None]] = {
    "XINFO": 2,
    "XGROUP": 2,
    **dict.fromkeys(("PING", "ECHO", "INFO", "TIME", "CLIENT", "CONFIG", "SCAN"), None),
}
_READS_OF_STREAMS: Final = ("XREAD", "XREADGROUP")


def slot_of_command(args: Sequence[Arg]) -> int | None:
    """The slot of a plain command's first key; None when it has no key.

    All keys of a shard share a hash tag, so one key tells the node. A client library would ask the server for it
    (COMMAND GETKEYS, with all arguments); here the commands are few and known.
    """
    name = args[0].decode() if isinstance(args[0], bytes) else str(args[0])
    if name in _READS_OF_STREAMS:
        at = next(at for at, arg in enumerate(args) if arg in ("STREAMS", b"STREAMS")) + 1
    else:
        at = _PLACES.get(name, _FIRST)
    return None if at is None or at >= len(args) else slot_of_key(args[at])


def slot_of_key(key: Arg) -> int:
    """The slot of a key: of what stands between its first braces, if anything does."""
    raw = key if isinstance(key, bytes) else str(key).encode()
    begin = raw.find(b"{")
    end = raw.find(b"}", begin + 1)
    tag = raw[begin + 1 : end] if 0 <= begin < end - 1 else raw
    return binascii.crc_hqx(tag, 0) % SLOTS


@dataclass(frozen=True, slots=True)
class SlotRange:
    """Slots that one primary serves.

    Attributes:
        first, last: both included.
        primary: where it is.
        replicas: where its replicas are.
    """

    first: int
    last: int
    primary: Place
    replicas: tuple[Place, ...]


def read_slots(reply: Reply, asked: Place) -> list[SlotRange]:
    """The reply of CLUSTER SLOTS, from the node ``asked``. A node that is not told by its name is left out."""
    found: list[SlotRange] = []
    for first, last, *nodes in cast("list[Any]", reply):
        places = list(_places(nodes, asked))
        if places and places[0] is not None:
            found.append(SlotRange(first, last, places[0], tuple(place for place in places[1:] if place)))
    return found


def _places(nodes: Sequence[Sequence[Any]], asked: Place) -> Iterator[Place | None]:
    for host, port, *_ in nodes:
        if host in (None, b""):  # the host by which it was asked
            yield Place(asked.host, port)
        else:
            yield None if host == b"?" else Place(host.decode(), port)
