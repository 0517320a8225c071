"""The proxy as ASGI: `CaptureMiddleware` records the calls to whatever it wraps, `ProxyApp` is the whole proxy.

This is the only place where the parts are put together. The way of a call: attribution (`attribution`), admission
(`ledger`), shaping (`shaping`), the inference server (`upstream`), and back through the recorder (`recorder`), which
reads it (`capture`), judges it (`checks`) and stores the span (`record`) before its end is released.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

from agl_proxy import checks
from agl_proxy.asgi import Message, Receive, Scope, Send, read_body, replay
from agl_proxy.attribution import CHAT_COMPLETIONS, Attribution, Treatment, attribute, treatment
from agl_proxy.errors_openai import ErrorAnswer, answer_to, send_error
from agl_proxy.fault import Fault, Inner
from agl_proxy.ledger import STORE_TIMEOUT_S, CaptureMode, CaptureStore, Ledger
from agl_proxy.record import Call
from agl_proxy.recorder import Recorder
from agl_proxy.shaping import shape
from agl_proxy.strip import stripping
from agl_proxy.upstream import Timeouts, Upstream, public_url
from agl_proxy.watch import Watches
from agl_streams import errors
from agl_streams.logger import get_logger

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
HEALTH: Final = "/health"

_log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    """What the proxy is told.

    Attributes:
        upstream: base URL of the inference server, as in ``http://localhost:8000``.
        capture: ``required``: a call that cannot be recorded fails. ``best_effort``: it passes, and is logged.
        strip: take out of answers the token ids and log-probabilities that their client did not ask for.
        allow_unattributed: let calls outside any rollout pass, unrecorded.
        max_request_bytes: limit of a request's body.
    """

    upstream: str
    capture: CaptureMode = "required"
    strip: bool = False
    allow_unattributed: bool = False
    max_request_bytes: int = MAX_REQUEST_BYTES
    timeouts: Timeouts = field(default_factory=Timeouts)


class CaptureMiddleware:
    """Records the model calls of rollouts; other calls pass by, or are refused.

    Args:
        inner: makes the answers.
        store: admits calls and keeps spans.

    Attributes:
        running: the tasks of the calls that are being answered.
    """

    def __init__(self, inner: Inner, store: CaptureStore, options: ProxyOptions) -> None:
        self._inner = inner
        self._ledger = Ledger(store, options.capture)
        self._options = options
        self._upstream = public_url(options.upstream)
        self._watches = Watches()
        self.running: set[asyncio.Task[Any]] = set()

    @property
    def in_flight(self) -> int:
        """How many calls are being answered now."""
        return len(self.running)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call; what is not HTTP is the inner application's."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None  # a coroutine always runs in a task; this is for the type checker
        self.running.add(task)
        try:
            await self._serve(scope, receive, send)
        finally:
            self.running.discard(task)

    async def drain(self, timeout_s: float) -> None:
        """Wait until no call is being answered, but not longer than ``timeout_s``."""
        if self.running:
            await asyncio.wait(self.running, timeout=timeout_s)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = attribute(scope)
        what = treatment(scope["method"], scope["path"] if place is None else place.path)
        try:
            body = await read_body(scope, receive, self._options.max_request_bytes)
            if place is None:
                self._check_unattributed(scope, what)
            elif what is Treatment.RECORD:
                request = shape(body)
                sequence_id = await self._ledger.admit(place.rollout_id, place.attempt_id)
                if sequence_id is not None:
                    call = Call(place.rollout_id, place.attempt_id, sequence_id, request, self._upstream)
                    await self._record(call, _chat_scope(scope), receive, send)
                    return
            else:
                await self._check_unrecorded(place, what)
        except errors.AglError as error:
            await send_error(send, answer_to(error))
            return
        await self._pass(_inner_scope(scope, place), body, receive, send)

    async def _record(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        request = call.request
        edit = stripping(request) if self._options.strip else None
        watch = self._watches.watch(receive)
        recorder = Recorder(call, send, self._ledger, watch, edit=edit)
        try:
            async with watch:
                fault = await self._inner(scope, replay(request.upstream, _never), recorder.send)
                if fault is not None:
                    await recorder.fail(fault)
            if watch.gone:
                await recorder.abandon(checks.CLIENT_GONE, "the client hung up before its answer was complete")
        except errors.CaptureError as error:
            _log.debug("call_cut_short", reason=str(error))  # the recorder has told the client and the log
        except asyncio.CancelledError:
            await recorder.abandon(checks.PROXY_STOPPED, "the proxy was stopped while the call ran")
            raise
        except Exception as error:
            await recorder.fail(Fault(checks.PROXY_ERROR, _internal(error)))
            raise

    async def _pass(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Forward and forget."""
        begun = False

        async def send_noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        async with self._watches.watch(receive):
            fault = await self._inner(scope, replay(body, _never), send_noting)
            if fault is None:
                return
            if begun:  # only a connection that breaks off can tell the client now
                raise errors.AglError(fault.answer.message)
            await send_error(send, fault.answer)

    def _check_unattributed(self, scope: Scope, what: Treatment) -> None:
        if what is Treatment.UNKNOWN:
            raise errors.NotFound(f"the proxy does not forward {scope['path']!r}")
        if not self._options.allow_unattributed:
            raise errors.NotFound(
                f"{scope['path']!r} belongs to no rollout; put /rollout/<rollout id>/attempt/<attempt id> before it, "
                "or start the proxy with --allow-unattributed"
            )

    async def _check_unrecorded(self, place: Attribution, what: Treatment) -> None:
        if what is Treatment.UNKNOWN:
            raise errors.NotFound(f"the proxy does not forward {place.path!r} to agents")
        if what is not Treatment.UNRECORDED:
            return
        if self._ledger.required:
            raise errors.NotFound(f"calls of {place.path!r} cannot be recorded; use {CHAT_COMPLETIONS}")
        await self._ledger.admit(place.rollout_id, place.attempt_id)
        _log.warning("call_unrecorded", rollout_id=place.rollout_id, attempt_id=place.attempt_id, path=place.path)


class ProxyApp:
    """The standalone proxy: an ASGI application in front of one inference server.

    It is an asynchronous context manager, open while it serves; leaving it waits for the calls in flight.
    """

    def __init__(self, store: CaptureStore, options: ProxyOptions) -> None:
        self._upstream = Upstream(options.upstream, options.timeouts, options.max_request_bytes)
        self.capture = CaptureMiddleware(self._upstream, store, options)

    async def __aenter__(self) -> Self:
        await self._upstream.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.capture.drain(STORE_TIMEOUT_S)  # a server that stops by force cancels calls and does not wait
        await self._upstream.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP call. ``/health`` outside any rollout is the proxy's own."""
        if scope["type"] != "http":
            raise errors.InvalidRequest(f"the proxy speaks HTTP, not {scope['type']!r}")
        if scope["path"] == HEALTH:
            await _answer_health(send, self.capture.in_flight)
            return
        await self.capture(scope, receive, send)


async def _answer_health(send: Send, in_flight: int) -> None:
    body = b'{"status":"ok","in_flight":%d}' % in_flight
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": HTTPStatus.OK.value, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _chat_scope(scope: Scope) -> Scope:
    return {**scope, "path": CHAT_COMPLETIONS, "raw_path": CHAT_COMPLETIONS.encode("ascii")}


def _inner_scope(scope: Scope, place: Attribution | None) -> Scope:
    return scope if place is None else {**scope, "path": place.path, "raw_path": place.raw_path}


async def _never() -> Message:
    """The ``receive`` of an inner application, which is told by cancelling it that the client has gone."""
    return await asyncio.get_running_loop().create_future()


def _internal(error: Exception) -> ErrorAnswer:
    return ErrorAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", f"the proxy failed: {error!r}")
