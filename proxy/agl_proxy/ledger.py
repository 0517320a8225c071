"""The proxy's side of the store: admission before a call, the span after it, and what to do while the store is away."""

from __future__ import annotations

import asyncio
from typing import Final, Literal, Protocol, TypeAlias

from agl_proxy import checks
from agl_proxy.errors_openai import ErrorAnswer, answer_to
from agl_proxy.record import Call, bare_span_of, span_of
from agl_streams import errors
from agl_streams.logger import get_logger
from agl_streams.models import Span
from agl_streams.values import check_attempt_id, check_rollout_id

STORE_TIMEOUT_S: Final = 12.0
"""For one call to the store. Its connection tries again for ten seconds when the server is away; this is for a server
that takes commands and does not answer. Clients of language models wait longer than that."""

CaptureMode: TypeAlias = Literal["required", "best_effort"]

_log = get_logger()


class CaptureStore(Protocol):
    """The two things that the proxy needs of a store; `agl_streams.store.StreamStore` has them."""

    async def admit_call(self, rollout_id: str, attempt_id: str) -> int:
        """The sequence id for a model call of an attempt that may make one."""
        ...

    async def add_span(self, span: Span) -> Span | None:
        """Store a span; None when it was stored before."""
        ...


class Ledger:
    """Admits calls and keeps their spans.

    Args:
        mode: ``required`` lets nothing pass that cannot be recorded; ``best_effort`` lets it pass and logs it.
    """

    def __init__(self, store: CaptureStore, mode: CaptureMode) -> None:
        self._store = store
        self._mode = mode
        self._models_without_ids: set[str] = set()

    @property
    def required(self) -> bool:
        """Whether a call that cannot be recorded must fail."""
        return self._mode == "required"

    async def admit(self, rollout_id: str, attempt_id: str) -> int | None:
        """The sequence id of a new call; None to let it pass unrecorded.

        Raises:
            NotFound: no such rollout or attempt.
            Conflict: the attempt has ended, or a newer one owns the rollout.
            AglError: the store is away and capture is required.
        """
        try:
            check_rollout_id(rollout_id)
            check_attempt_id(attempt_id)
        except errors.InvalidRequest as error:
            raise errors.NotFound(f"there is no such rollout or attempt: {error}") from error
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                return await self._store.admit_call(rollout_id, attempt_id)
        except TimeoutError:
            error: errors.AglError = _late()
        except (errors.NotFound, errors.Conflict):
            raise
        except errors.AglError as away:
            error = away
        if self.required:
            raise error
        _log.error("call_untraced", rollout_id=rollout_id, attempt_id=attempt_id, error=str(error))
        return None

    async def record(self, call: Call) -> ErrorAnswer | None:
        """Store the span of a call that is over.

        Returns:
            None when the answer may be released; otherwise what the client gets instead.
        """
        reason = checks.incomplete_reason(call.answer)
        if reason is not None:
            self._report(call, reason)
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await self._add(call, reason)
        except TimeoutError:
            error: errors.AglError = _late()
        except errors.AglError as refusal:
            error = refusal
        else:
            return None
        _log.error(
            "span_not_stored",
            rollout_id=call.rollout_id,
            attempt_id=call.attempt_id,
            sequence_id=call.sequence_id,
            capture=self._mode,
            error=str(error),
        )
        return answer_to(error) if self.required else None

    async def _add(self, call: Call, reason: str | None) -> None:
        try:
            await self._store.add_span(span_of(call, reason))
        except errors.TooLarge as error:
            call.answer.note_fault(checks.TOO_LARGE, str(error))
            await self._store.add_span(bare_span_of(call, checks.TOO_LARGE))
        except errors.InvalidRequest as error:
            call.answer.note_fault(checks.UNREADABLE, str(error))
            await self._store.add_span(bare_span_of(call, checks.UNREADABLE))

    def _report(self, call: Call, reason: str) -> None:
        """Say what an operator must know: a capture that is incomplete, and loudly a server that gives no ids."""
        _log.warning(
            "capture_incomplete",
            rollout_id=call.rollout_id,
            attempt_id=call.attempt_id,
            sequence_id=call.sequence_id,
            model=call.request.model,
            reason=reason,  # its detail stays in the span: a server's error may quote the request
            status_code=call.answer.status_code,
        )
        if checks.without_ids(call.answer) and call.request.model not in self._models_without_ids:
            self._models_without_ids.add(call.request.model)
            _log.error(
                "model_gives_no_token_ids",
                model=call.request.model,
                upstream=call.upstream,
                hint="no call of this model can be trained on; serve it with vLLM 0.10.2 or later, and directly: "
                "gateways such as LiteLLM's proxy drop the token ids",
            )


def _late() -> errors.StoreUnavailable:
    return errors.StoreUnavailable(f"the store did not answer within {STORE_TIMEOUT_S:g} s; is its server overloaded?")
