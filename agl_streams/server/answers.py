"""Models as JSON answers: compact, nulls present, extras after the declared fields, text not escaped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic_core import from_json, to_json

from agl_streams.models import PaginatedResult
from agl_streams.server.call import Call
from agl_streams.shapes import Wire

NULL: Final = b"null"
KEEP_NAN: Final = "nan=keep"
"""Parameter of ``Accept: application/json`` by which a reader asks for NaN and infinity in spans as they are."""


def one(model: Wire | None) -> bytes:
    """A model, or null."""
    return NULL if model is None else model.to_json()


def many(models: Iterable[Wire]) -> bytes:
    """A list of models, each of its own kind."""
    return b"[%b]" % b",".join([model.to_json() for model in models])


def page(found: PaginatedResult[Any]) -> bytes:
    """A page of models."""
    items = b",".join([item.to_json() for item in found.items])
    return b'{"items":[%b],"limit":%d,"offset":%d,"total":%d}' % (items, found.limit, found.offset, found.total)


def plain(value: Any) -> bytes:
    """Any JSON value; NaN and infinity become null."""
    return to_json(value, inf_nan_mode="null")


def spans(data: bytes, call: Call) -> bytes:
    """JSON that holds spans, whose attributes may be NaN or infinite: null, as JSON knows neither and Agent-lightning
    answers, unless the reader asked to keep them."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    if KEEP_NAN in (call.request.text_header(b"accept") or ""):
        return data
    return plain(from_json(data))
