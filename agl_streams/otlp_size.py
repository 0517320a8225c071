"""How many messages a protobuf body would become, counted before it is read.

Read, an empty message of two bytes takes some eighty: 20 MB of them would take 1.7 GB.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from agl_streams.errors import InvalidRequest

Parts: TypeAlias = "dict[int, Parts]"
"""The fields of a message that are messages themselves, with theirs."""

_VALUE: Final[Parts] = {}
_PAIR: Final[Parts] = {2: _VALUE}
_VALUE.update({5: {1: _VALUE}, 6: {1: _PAIR}})  # a list of values, and a map
_SPAN: Final[Parts] = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}}  # attributes; events and links with theirs
_REQUEST: Final[Parts] = {1: {1: {1: _PAIR}, 2: {1: {3: _PAIR}, 2: _SPAN}}}  # resource; scope and spans

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_messages(data: bytes, limit: int) -> None:
    """Look at an ``ExportTraceServiceRequest`` without reading it. What is no such message is left to the reader.

    Raises:
        InvalidRequest: it holds more messages (spans, attributes, values, …) than ``limit``.
    """
    found = 0
    open_messages = [(0, len(data), _REQUEST)]
    while open_messages:
        at, end, parts = open_messages.pop()
        while at < end:
            tag, at = _number(data, at, end)
            kind = tag & 7
            if kind == _VARINT:
                _, at = _number(data, at, end)
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            elif kind == _BYTES:
                size, at = _number(data, at, end)
                inner = parts.get(tag >> 3)
                if inner is not None:
                    found += 1
                    if found > limit:
                        raise InvalidRequest(f"a body has at most {limit:,} messages; send it in parts")
                    open_messages.append((at + size, end, parts))
                    end, parts = min(at + size, end), inner
                else:
                    at += size
            else:
                break


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number as protobuf writes it, and the place behind it; one that is cut off leads behind the end."""
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 — its highest bit says that there is more
            return number, at
        shift += 7
    return number, end
