"""Spans over HTTP: storing, singly and in bulk, reading, numbers."""

from __future__ import annotations

from typing import Any, Final

from agl_streams.models import PaginatedResult, Span
from agl_streams.server import answers, paging, pruning
from agl_streams.server.call import Call
from agl_streams.server.schemas import (
    NextSequence,
    NextSequenceBody,
    NextSequencesBody,
    SequenceIds,
    SpanOptions,
    SpansBody,
    SpansFilter,
)
from agl_streams.server.table import Route
from agl_streams.store.spans import as_numbered

Page = PaginatedResult[Span]


async def add_span(call: Call) -> bytes:
    """Store a span."""
    options: SpanOptions = call.query
    span: Span = call.body
    data = span.to_json()  # what is stored is what is answered, unless the store gives the number
    new = call.store.encoded(span, data, assign_sequence=options.assign_sequence)
    (number,) = await call.store.append_encoded(span.rollout_id, span.attempt_id, [new], request_key=call.request_key)
    stored = as_numbered(span, number)
    return answers.spans(data if stored is span else answers.one(stored), call)


async def add_spans(call: Call) -> bytes:
    """Store many spans."""
    body: SpansBody = call.body
    numbers = await call.store.number_spans(
        body.spans, assign_sequence=body.assign_sequence, request_key=call.request_key
    )
    return answers.plain({"sequence_ids": numbers})


async def list_spans(call: Call) -> bytes:
    """List spans."""
    return await _query(call, call.query)


async def search_spans(call: Call) -> bytes:
    """Search spans."""
    return await _query(call, call.body)


async def next_sequence(call: Call) -> bytes:
    """Hand out a span number."""
    body: NextSequenceBody = call.body
    return b'{"sequence_id":%d}' % await call.store.get_next_span_sequence_id(body.rollout_id, body.attempt_id)


async def next_sequences(call: Call) -> bytes:
    """Hand out span numbers."""
    body: NextSequencesBody = call.body
    pairs = [(one.rollout_id, one.attempt_id) for one in body.attempts]
    return answers.plain({"sequence_ids": await call.store.get_many_span_sequence_ids(pairs)})


async def _query(call: Call, fields: SpansFilter) -> bytes:
    found: dict[str, Any] = paging.arguments(fields, Span)
    return answers.spans(answers.page(await call.store.query_spans(**found)), call)


SPANS: Final = (
    Route(
        method="POST", path="/v1/agl/spans", handler=add_span, status=201, tag="spans",
        summary="Store a span; null when it was there before", query=SpanOptions, body=Span,
        answer=Span | None, prune=pruning.prune_span,
    ),
    Route(
        method="GET", path="/v1/agl/spans", handler=list_spans, tag="spans", summary="List the spans of a rollout",
        query=SpansFilter, answer=Page,
    ),
    Route(
        method="POST", path="/v1/agl/spans/search", handler=search_spans, tag="spans",
        summary="Search the spans of a rollout", body=SpansFilter, answer=Page,
    ),
    Route(
        method="POST", path="/v1/agl/spans/next", handler=next_sequence, tag="spans",
        summary="The rollout's next span number, never handed out again", body=NextSequenceBody,
        answer=NextSequence,
    ),
)  # fmt: skip
SPAN_EXTRAS: Final = (
    Route(
        method="POST", path="/v1/agl/spans/batch", handler=add_spans, status=201, tag="spans",
        summary="Store many spans, in one step for each attempt", body=SpansBody, answer=SequenceIds,
        prune=pruning.prune_spans, ours=True,
    ),
    Route(
        method="POST", path="/v1/agl/spans/next/batch", handler=next_sequences, tag="spans",
        summary="Span numbers for many attempts", body=NextSequencesBody, answer=SequenceIds, ours=True,
    ),
)  # fmt: skip
