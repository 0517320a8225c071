"""The way back of one recorded call: passes the answer on, reads it, and stores the span before the answer's end.

An answer in one piece is held until its span is stored. Of a stream everything passes at once but its terminator.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NoReturn

from agl_proxy import checks
from agl_proxy.asgi import Headers, Message, Send, header
from agl_proxy.capture import MAX_ANSWER_BYTES, Edit, StreamCapture, read_whole
from agl_proxy.errors_openai import ErrorAnswer, send_error
from agl_proxy.fault import Fault
from agl_proxy.ledger import Ledger
from agl_proxy.record import Call
from agl_proxy.watch import ClientWatch
from agl_streams import clock
from agl_streams.errors import CaptureError

FINISHED_GRACE_S: Final = 0.5
"""A client may hang up at the finish reason, when only usage and terminator are to come: they are waited for so long.
The server sends them together; and a client that left early still has its call cancelled within a second."""

_ERROR_SHOWN = 1000  # characters of the server's error that the span keeps


class Recorder:
    """The ``send`` of one call.

    Args:
        call: where what is read is noted.
        send: the server's.
        ledger: keeps the span.
        watch: told when the answer nears its end, and when it has come to it: then the client may leave.
        edit: changes to the answer for the client's eyes.
    """

    def __init__(self, call: Call, send: Send, ledger: Ledger, watch: ClientWatch, *, edit: Edit | None) -> None:
        self._call = call
        self._answer = call.answer
        self._client = send
        self._ledger = ledger
        self._edit = edit
        self._watch = watch
        self._head: Message = {}
        self._stream: StreamCapture | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._recorded = False
        self._released = False
        self._ended = False

    async def send(self, message: Message) -> None:
        """Take one message of the inference server.

        Raises:
            CaptureError: the client has had its last word; there is no use in going on with the call.
        """
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] != "http.response.body":
            await self._client(message)
        elif self._stream is not None:
            await self._pass(self._stream, message.get("body", b""), more=message.get("more_body", False))
        else:
            await self._hold(message.get("body", b""), more=message.get("more_body", False))

    async def fail(self, fault: Fault) -> None:
        """The call cannot go on: store what there is, and tell the client, unless it has its whole answer already."""
        if self._ended:
            return
        if self._released:  # the terminator is out; only the connection behind it did not end well
            await self._end()
            return
        if not self._recorded:  # the call fails in any case, so it does not matter here whether the span was stored
            self._answer.note_fault(fault.reason, fault.answer.message)
            await self._record()
        await self._say(fault.answer)

    async def abandon(self, reason: str, detail: str) -> None:
        """Nobody waits for the answer any more: store what there is."""
        if not self._recorded:
            self._answer.note_fault(reason, detail)
            await self._record()

    async def _begin(self, message: Message) -> None:
        headers: Headers = list(message["headers"])
        self._head = {**message, "headers": headers}
        self._answer.status_code = message["status"]
        is_stream = header(headers, b"content-type").startswith(b"text/event-stream")
        if message["status"] == HTTPStatus.OK and is_stream and not header(headers, b"content-encoding"):
            self._answer.streamed = True
            self._stream = StreamCapture(self._answer, drop_usage=not self._call.request.asked_usage, edit=self._edit)
            self._head["headers"] = [pair for pair in headers if pair[0] != b"content-length"]
            await self._client(self._head)

    async def _pass(self, stream: StreamCapture, piece: bytes, *, more: bool) -> None:
        try:
            out = stream.feed(piece)
        except CaptureError as error:
            await self._give_up(error)
        if not more:
            out += stream.finish()
        if self._call.first_token_at is None and self._answer.has_tokens():
            self._call.first_token_at = clock.monotonic_s()
        if self._answer.finished(self._call.request.choices):
            self._watch.grace_s = FINISHED_GRACE_S
        if out:
            await self._client({"type": "http.response.body", "body": out, "more_body": True})
        if self._answer.terminated and not self._recorded:
            await self._record_or_refuse()
            self._released = True
            await self._client({"type": "http.response.body", "body": stream.take_held(), "more_body": True})
        if not more:
            await self._finish_stream()

    async def _finish_stream(self) -> None:
        """The server has ended the stream, with its terminator or without."""
        if not self._recorded:
            broken = self._answer.fault is None and not self._answer.finished(self._call.request.choices)
            await self._record_or_refuse()
            if broken:  # or the agent would take half an answer for a whole one
                await self._say(_broken_off())
                return
        await self._end()

    async def _hold(self, piece: bytes, *, more: bool) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > MAX_ANSWER_BYTES:
            await self._give_up(CaptureError(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes"))
        if not more:
            await self._release(b"".join(self._held))

    async def _release(self, body: bytes) -> None:
        """The whole answer is here: store, then let it go."""
        if self._answer.status_code == HTTPStatus.OK:
            out = read_whole(self._answer, body, self._edit)
        else:
            out = body
            self._answer.note_fault(checks.UPSTREAM_STATUS, body[:_ERROR_SHOWN].decode("utf-8", "replace"))
        await self._record_or_refuse()
        if out is not body:
            pairs = [pair for pair in self._head["headers"] if pair[0] != b"content-length"]
            self._head["headers"] = [*pairs, (b"content-length", b"%d" % len(out))]
        await self._client(self._head)
        await self._client({"type": "http.response.body", "body": out, "more_body": False})
        self._ended = True

    async def _record(self) -> ErrorAnswer | None:
        self._watch.disarm()
        self._recorded = True
        return await self._ledger.record(self._call)

    async def _record_or_refuse(self) -> None:
        refusal = await self._record()
        if refusal is not None:
            await self._say(refusal)
            raise CaptureError(refusal.message)

    async def _give_up(self, error: CaptureError) -> NoReturn:
        await self.fail(Fault(checks.TOO_LARGE, ErrorAnswer(HTTPStatus.BAD_GATEWAY, "UpstreamError", str(error))))
        raise error

    async def _say(self, answer: ErrorAnswer) -> None:
        """The client's last word is an error."""
        self._ended = True
        if self._stream is None:
            await send_error(self._client, answer)
        else:
            await self._client({"type": "http.response.body", "body": answer.event(), "more_body": False})

    async def _end(self) -> None:
        self._ended = True
        await self._client({"type": "http.response.body", "body": b"", "more_body": False})


def _broken_off() -> ErrorAnswer:
    message = "the inference server ended its stream before the answer was complete"
    return ErrorAnswer(HTTPStatus.BAD_GATEWAY, "UpstreamError", message)
