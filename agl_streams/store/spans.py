"""Spans: stored once per attempt and span id, numbered within the rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agl_streams.appending import NewSpan
from agl_streams.encoding import encode_span
from agl_streams.models import Span
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.store.repeats import RequestKey

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


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
        new = self.encoded(span, span.to_json(), assign_sequence=assign_sequence)
        (number,) = await self._append(rollout_id, attempt_id, [new], request_key)
        return as_numbered(span, number)

    async def add_many_spans(
        self, spans: Sequence[Span], *, assign_sequence: bool = False, request_key: str | None = None
    ) -> list[Span]:
        """Store spans, grouped by attempt; returns those that were new, in the order given.

        Raises:
            As `add_span`, for the first group that fails; groups before it are stored.
        """
        numbers = await self.number_spans(spans, assign_sequence=assign_sequence, request_key=request_key)
        found = (as_numbered(span, number) for span, number in zip(spans, numbers, strict=True))
        return [span for span in found if span is not None]

    async def number_spans(
        self, spans: Sequence[Span], *, assign_sequence: bool = False, request_key: str | None = None
    ) -> list[int | None]:
        """As `add_many_spans`; returns for each span the sequence number that it has, or None for a duplicate."""
        groups: dict[tuple[str, str], list[int]] = {}
        for at, span in enumerate(spans):
            groups.setdefault(_ids(span), []).append(at)
        encoded = [self.encoded(span, span.to_json(), assign_sequence=assign_sequence) for span in spans]
        numbers: list[int | None] = [None] * len(spans)
        for (rollout_id, attempt_id), places in groups.items():
            given = await self._append(rollout_id, attempt_id, [encoded[at] for at in places], request_key)
            for at, number in zip(places, given, strict=True):
                numbers[at] = number
        return numbers

    async def append_encoded(
        self, rollout_id: str, attempt_id: str, spans: Sequence[NewSpan], *, request_key: str | None = None
    ) -> list[int | None]:
        """Store spans of one attempt that are encoded already, by `encode_span`; what `number_spans` returns.

        Raises:
            NotFound: no such rollout or attempt.
        """
        rollout_id, attempt_id = requests.known_form(rollout_id), requests.known_form(attempt_id)
        return await self._append(rollout_id, attempt_id, spans, request_key)

    async def _append(
        self, rollout_id: str, attempt_id: str, spans: Sequence[NewSpan], request_key: str | None
    ) -> list[int | None]:
        token = request_key and RequestKey.of(request_key).token
        return await self.functions_of(rollout_id).append_spans(rollout_id, attempt_id, spans, token)

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

    def encoded(self, span: Span, payload: bytes, *, assign_sequence: bool) -> NewSpan:
        """A span as `append_encoded` takes it.

        Args:
            payload: its ``to_json()``.

        Raises:
            InvalidRequest, TooLarge: the message names the field and the value.
        """
        return encode_span(
            payload,
            span_id=span.span_id,
            name=span.name,
            attributes=span.attributes,
            start_time=span.start_time,
            end_time=span.end_time,
            sequence_id=None if assign_sequence else span.sequence_id,
            max_bytes=self.settings.max_span_bytes,
        )


def _ids(span: Span) -> tuple[str, str]:
    """Rollout and attempt of what must be a span."""
    requests.of_kind(span, Span, "a span")
    return requests.known_form(span.rollout_id), requests.known_form(span.attempt_id)


def as_numbered(span: Span, number: int | None) -> Span | None:
    """A span as it is stored under a number; None when it was there before."""
    if number is None or number == span.sequence_id:
        return None if number is None else span
    return span.model_copy(update={"sequence_id": number})
