"""Reads an answer off its passing bytes: state machines without any input or output of their own.

`StreamCapture` is fed the pieces of a stream as they arrive and says which bytes may go on to the client: all of them,
as they are, except the usage-only event that the client did not ask for. The terminator is held back until the caller
takes it, which it does when the span is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import orjson

from agl_proxy import checks
from agl_proxy.answer import Answer
from agl_proxy.sse import EventSplitter, event_data
from agl_streams.errors import CaptureError

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""One event of a stream. The first chunk carries the prompt ids (7 bytes a token); a million tokens fit twice."""
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""An answer in one piece, held until it is stored. With prompt log-probabilities 100,000 tokens take about 20 MB."""

Edit: TypeAlias = Callable[[dict[str, Any]], bool]
"""Changes a parsed answer or chunk for the client's eyes, in place; False when it changed nothing."""

_TERMINATOR = b"[DONE]"
_MISSHAPEN = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class StreamCapture:
    """The capture of one stream of chat completion chunks.

    Args:
        answer: what is read is put here.
        drop_usage: take out the usage-only event, for a client that did not ask for it.
        edit: changes chunks for the client, after they were read; None passes all bytes as they are.
    """

    __slots__ = ("_answer", "_drop_usage", "_edit", "_held", "_splitter")

    def __init__(self, answer: Answer, *, drop_usage: bool, edit: Edit | None = None) -> None:
        self._answer = answer
        self._drop_usage = drop_usage
        self._edit = edit
        self._splitter = EventSplitter()
        self._held: list[bytes] | None = []

    def feed(self, piece: bytes) -> bytes:
        """Read a piece of the stream.

        Returns:
            What may go to the client now: whole events only. Once the terminator was seen, it and all after it wait
            for `take_held`.

        Raises:
            CaptureError: an event is above `MAX_EVENT_BYTES`.
        """
        if self._held is None:  # after the terminator was taken
            return piece
        whole_before = not self._splitter.pending
        events = self._splitter.feed(piece)
        if self._splitter.pending > MAX_EVENT_BYTES:
            raise CaptureError(f"the stream has an event of more than {MAX_EVENT_BYTES:,} bytes")
        passed = [kept for event in events if (kept := self._pass(event))]
        if self._held or len(passed) != len(events) or self._edit or not whole_before or self._splitter.pending:
            return b"".join(passed)
        return piece

    def finish(self) -> bytes:
        """The stream has ended: read what is left of it, and return it. An unfinished event counts as a whole one."""
        if self._held is None:
            return b""
        rest = self._splitter.take_rest()
        return self._pass(rest) if rest else b""

    def take_held(self) -> bytes:
        """The terminator and what came behind it. From now on all bytes pass."""
        held = [*(self._held or ()), self._splitter.take_rest()]
        self._held = None
        return b"".join(held)

    def _pass(self, event: bytes) -> bytes:
        """Read one event: what of it may go on at once."""
        if not self._held:
            event = self._read(event)
        if self._answer.terminated and self._held is not None:
            self._held.append(event)
            return b""
        return event

    def _read(self, event: bytes) -> bytes:
        data = event_data(event)
        if data is None:
            return event
        if data.startswith(_TERMINATOR) and data.strip() == _TERMINATOR:
            self._answer.terminated = True
            return event
        try:
            chunk = cast("dict[str, Any]", orjson.loads(data))
            self._answer.take(chunk, "delta")
            if self._drop_usage and not chunk.get("choices") and chunk.get("usage"):
                return b""
        except _MISSHAPEN as error:
            self._answer.note_fault(checks.UNREADABLE, f"an event is no chat completion chunk: {error!r}")
            return event
        if self._edit is not None and self._edit(chunk):
            return b"data: " + orjson.dumps(chunk) + b"\n\n"
        return event


def read_whole(answer: Answer, body: bytes, edit: Edit | None = None) -> bytes:
    """Read an answer in one piece into ``answer``, and return the bytes for the client: the same, unless edited."""
    answer.terminated = True
    try:
        data = cast("dict[str, Any]", orjson.loads(body))
        answer.take(data, "message")
    except _MISSHAPEN as error:
        answer.note_fault(checks.UNREADABLE, f"the answer is no chat completion: {error!r}")
        return body
    return orjson.dumps(data) if edit is not None and edit(data) else body
