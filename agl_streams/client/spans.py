"""Spans over HTTP: storing them, in few calls, and their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from agl_streams.client.base import ClientBase, encoded, maybe, new_key
from agl_streams.errors import TooLarge
from agl_streams.models import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

BATCH: Final = 200
"""Spans of one call: as many as one call of the store's server takes."""
BATCH_BYTES: Final = 8 * 1024 * 1024


class SpanCalls(ClientBase):
    """What happened."""

    async def add_span(
        self, span: Span, *, assign_sequence: bool = False, request_key: str | None = None
    ) -> Span | None:
        """Store one span; None when the attempt already has a span of that id; see `StreamStore.add_span`."""
        path = "spans?assign_sequence=true" if assign_sequence else "spans"
        answer = await self._transport.post(path, self._span_json(span), key=request_key or new_key())
        return maybe(Span, answer)

    async def add_many_spans(
        self, spans: Sequence[Span], *, assign_sequence: bool = False, request_key: str | None = None
    ) -> list[Span]:
        """Store spans of any attempts; returns those that were new, in the order given."""
        numbers = await self.number_spans(spans, assign_sequence=assign_sequence, request_key=request_key)
        pairs = zip(spans, numbers, strict=True)
        return [span.model_copy(update={"sequence_id": number}) for span, number in pairs if number is not None]

    async def number_spans(
        self, spans: Sequence[Span], *, assign_sequence: bool = False, request_key: str | None = None
    ) -> list[int | None]:
        """As `add_many_spans`; returns for each span the sequence number that it has, or None for a duplicate."""
        key = request_key or new_key()
        numbers: list[int | None] = []
        for number, batch in enumerate(_batches([self._span_json(span) for span in spans])):
            assign = b"true" if assign_sequence else b"false"
            body = b'{"assign_sequence":%b,"spans":[%b]}' % (assign, b",".join(batch))
            answer = await self._transport.post("spans/batch", body, key=f"{key}-{number}")
            numbers += answer["sequence_ids"]
        return numbers

    async def add_otel_span(
        self, rollout_id: str, attempt_id: str, readable_span: ReadableSpan, sequence_id: int | None = None
    ) -> Span | None:
        """Store a span of OpenTelemetry's SDK; without a sequence id it takes the next one."""
        span = Span.from_opentelemetry(readable_span, rollout_id, attempt_id, sequence_id or 0)
        return await self.add_span(span, assign_sequence=sequence_id is None)

    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        """The rollout's next sequence number, never handed out again."""
        return (await self.get_many_span_sequence_ids([(rollout_id, attempt_id)]))[0]

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> list[int]:
        """Sequence numbers for (rollout, attempt) pairs in order."""
        refs = [{"rollout_id": rollout_id, "attempt_id": attempt_id} for rollout_id, attempt_id in rollout_attempt_ids]
        body = encoded({"attempts": refs}, self.settings.max_request_bytes)
        return (await self._transport.post("spans/next/batch", body))["sequence_ids"]

    def _span_json(self, span: Span) -> bytes:
        data, limit = span.to_json(), self.settings.max_span_bytes
        if len(data) > limit:
            raise TooLarge(
                f"span {span.span_id!r} ({span.name!r}) has {len(data):,} bytes as JSON, the limit is {limit:,}"
            )
        return data


def _batches(items: Sequence[bytes]) -> list[list[bytes]]:
    """Batches of bounded length and size; a larger single span goes alone."""
    batches: list[list[bytes]] = []
    size = BATCH_BYTES
    for item in items:
        if size + len(item) > BATCH_BYTES or len(batches[-1]) == BATCH:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += len(item)
    return batches
