"""Spans: stored once per attempt and span id, numbered within the rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agl_streams import bodies
from agl_streams.appending import NewSpan
from agl_streams.errors import InvalidRequest, TooLarge
from agl_streams.models import Span
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.store.repeats import RequestKey
from agl_streams.sums import sums_of
from agl_streams.values import shown

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

US_PER_S: Final = 1_000_000
MAX_SEQUENCE: Final = 10**13  # Lua prints a number to 14 digits, so one below this keeps all of its own
MAX_TIME_US: Final = 2**52  # a double, which Lua compares times with, is exact far beyond it
MAX_SPAN_ID: Final = 256


class SpansMixin(StoreBase):
    """What happened during an attempt."""

    async def add_span(
        self, span: Span, *, assign_sequence: bool = False, request_key: str | None = None
    ) -> Span | None:
        """Store one span; it is a heartbeat of its attempt, and the first one sets it running.

        Args:
            assign_sequence: the store gives the span the rollout's next sequence number, in the same call.
            request_key: a repeat of the call with the same key gets the first answer, not None.

        Returns:
            The span as stored; None when the attempt already has a span of that id.

        Raises:
            NotFound: no such rollout or attempt.
            InvalidRequest, TooLarge: the message names the field and the value.
        """
        rollout_id, attempt_id = _ids(span)
        new = self._new_span(span, assign_sequence)
        token = request_key and RequestKey.of(request_key).token
        number = (await self.functions_of(rollout_id).append_spans(rollout_id, attempt_id, [new], token))[0]
        return _stored(span, number)

    async def add_many_spans(
        self, spans: Sequence[Span], *, assign_sequence: bool = False, request_key: str | None = None
    ) -> list[Span]:
        """Store spans, grouped by attempt; returns those that were new, in the order given.

        Raises:
            As `add_span`, for the first group that fails; groups before it are stored.
        """
        numbers = await self.number_spans(spans, assign_sequence=assign_sequence, request_key=request_key)
        found = (_stored(span, number) for span, number in zip(spans, numbers, strict=True))
        return [span for span in found if span is not None]

    async def number_spans(
        self, spans: Sequence[Span], *, assign_sequence: bool = False, request_key: str | None = None
    ) -> list[int | None]:
        """As `add_many_spans`; returns for each span the sequence number that it has, or None for a duplicate."""
        groups: dict[tuple[str, str], list[int]] = {}
        for at, span in enumerate(spans):
            groups.setdefault(_ids(span), []).append(at)
        encoded = [self._new_span(span, assign_sequence) for span in spans]
        token = request_key and RequestKey.of(request_key).token
        numbers: list[int | None] = [None] * len(spans)
        for (rollout_id, attempt_id), places in groups.items():
            functions = self.functions_of(rollout_id)
            given = await functions.append_spans(rollout_id, attempt_id, [encoded[at] for at in places], token)
            for at, number in zip(places, given, strict=True):
                numbers[at] = number
        return numbers

    async def add_otel_span(
        self, rollout_id: str, attempt_id: str, readable_span: ReadableSpan, sequence_id: int | None = None
    ) -> Span | None:
        """Store a span of OpenTelemetry's SDK; without a sequence id it takes the next one.

        Raises:
            As `add_span`.
        """
        span = Span.from_opentelemetry(readable_span, rollout_id, attempt_id, sequence_id or 0)
        return await self.add_span(span, assign_sequence=sequence_id is None)

    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        """The rollout's next sequence number, never handed out again. Neither id is checked for existence."""
        return await self.functions_of(rollout_id).admit(
            requests.known_form(rollout_id), requests.known_form(attempt_id), check=False
        )

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> list[int]:
        """Sequence numbers for (rollout, attempt) pairs in order: consecutive within a rollout, one call each."""
        counts: dict[str, int] = {}
        for rollout_id, attempt_id in rollout_attempt_ids:
            requests.known_form(attempt_id)
            counts[requests.known_form(rollout_id)] = counts.get(rollout_id, 0) + 1
        following = {
            rollout_id: await self.functions_of(rollout_id).admit(rollout_id, "", count, check=False)
            for rollout_id, count in counts.items()
        }
        numbers: list[int] = []
        for rollout_id, _ in rollout_attempt_ids:
            numbers.append(following[rollout_id])
            following[rollout_id] += 1
        return numbers

    async def admit_call(self, rollout_id: str, attempt_id: str) -> int:
        """Admit a model call of an attempt; returns the sequence number of the span that will record it.

        Raises:
            NotFound: no such rollout or attempt.
            AttemptEnded: it is over, or its rollout is finished.
            Superseded: a newer attempt owns the rollout.
        """
        functions = self.functions_of(requests.known_form(rollout_id))
        return await functions.admit(rollout_id, requests.known_form(attempt_id), check=True)

    def _new_span(self, span: Span, assign_sequence: bool) -> NewSpan:
        span_id = span.span_id
        if not 0 < len(span_id) <= MAX_SPAN_ID or not span_id.isprintable():
            raise InvalidRequest(f"span id must be 1 to {MAX_SPAN_ID} printable characters, got {shown(span_id)}")
        if not assign_sequence and not 0 <= span.sequence_id <= MAX_SEQUENCE:
            raise InvalidRequest(
                f"sequence_id of span {span_id!r} must be between 0 and {MAX_SEQUENCE}, got {span.sequence_id}"
            )
        payload = span.to_json()
        limit = self.settings.max_span_bytes
        if len(payload) > limit:
            raise TooLarge(
                f"span {span_id!r} ({span.name!r}) has {len(payload):,} bytes as JSON, the limit is {limit:,}"
            )
        return NewSpan(
            span_id=span_id,
            sequence="" if assign_sequence else str(span.sequence_id),
            first_us=_time(span.start_time),
            last_us=_time(span.end_time),
            sums=_sums(span),
            payload=bodies.pack(payload),
        )


def _ids(span: Span) -> tuple[str, str]:
    """Rollout and attempt of what must be a span."""
    requests.of_kind(span, Span, "a span")
    return requests.known_form(span.rollout_id), requests.known_form(span.attempt_id)


def _time(seconds: float | None) -> str:
    # Times of spans come from the agents' clocks; what is no plain Unix time is kept in the span and left out of sums.
    if seconds is None or not 0 <= seconds < MAX_TIME_US / US_PER_S:
        return ""
    return str(int(seconds * US_PER_S))


def _sums(span: Span) -> str:
    sums = sums_of(span)
    if not sums.model_calls and not sums.rewards:
        return ""
    counts = (sums.model_calls, sums.prompt_tokens, sums.completion_tokens, sums.incomplete, sums.rewards)
    text = ",".join(map(str, counts))
    return text if sums.reward is None else f"{text},{sums.reward!r}"


def _stored(span: Span, number: int | None) -> Span | None:
    if number is None or number == span.sequence_id:
        return None if number is None else span
    return span.model_copy(update={"sequence_id": number})
