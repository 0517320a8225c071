"""Cuts a stream of server-sent events into whole events, whatever the pieces in which it arrives.

Bytes in, bytes out: nothing is decoded, so that a character split between two pieces is no special case. An event ends
with an empty line; lines end with LF, CR LF or CR (WHATWG HTML, section 9.2.6). The cuts depend on the stream alone,
never on its pieces.
"""

from __future__ import annotations

import re

# The end of an event: two line ends. A CR at the very end of what has arrived may be half a CR LF, so after a line end
# it counts only once the next byte is known; CR CR counts at once, or a stream of CR alone would always lag behind.
_EVENT_END = re.compile(rb"\n\n|\r\n\r\n|\r\r|\n\r\n|\r\n\n|\n\r(?=[^\n])|\r\n\r(?=[^\n])")
_LONGEST_END = 4
_LINE_END = re.compile(rb"\r\n|\n|\r")

_DATA = b"data:"
_USUAL = b"data: "
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventSplitter:
    """Collects pieces of a stream and gives out its whole events, each with the empty line that ends it."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes of the event that has begun and not ended."""
        return len(self._tail)

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that ``piece`` completes."""
        searched = max(len(self._tail) - _LONGEST_END, 0)
        buffer = self._tail + piece if self._tail else piece
        if b"\r" not in buffer:  # what vLLM sends; a C loop instead of a match object per event
            *whole, self._tail = buffer.split(b"\n\n")
            return [event + b"\n\n" for event in whole]
        events: list[bytes] = []
        start = 0
        while (match := _EVENT_END.search(buffer, max(start, searched))) is not None:
            events.append(buffer[start : match.end()])
            start = match.end()
        self._tail = buffer[start:]
        return events

    def take_rest(self) -> bytes:
        """The bytes of an unfinished event, which are then forgotten."""
        rest, self._tail = self._tail, b""
        return rest


def event_data(event: bytes) -> bytes | None:
    """The data of one whole event, its lines joined by LF; None when it has none (a comment, say)."""
    if event.startswith(_USUAL) and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        return event[len(_USUAL) : -2]
    lines = _LINE_END.split(event.removeprefix(_BYTE_ORDER_MARK))
    data = [line[len(_DATA) :].removeprefix(b" ") for line in lines if line.startswith(_DATA) or line == _DATA[:-1]]
    return b"\n".join(data) if data else None
