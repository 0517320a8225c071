"""Keeping complaints bounded: a huge body of wrong things is cut down before it is validated.

Validation notes every fault, and a wrong attribute of a span is noted once for each type that it could have had: one
megabyte of them made a gigabyte of notes. Of the odd entries of a large map the first few are kept, and of a list what
comes before its tenth wrong part. One is enough for the body to be refused, so nothing is ever stored from what was
cut down.
"""

from __future__ import annotations

from typing import Any, Final, cast

from agl_streams.errors import InvalidRequest

FEW_BYTES: Final = 8 * 1024
"""A body up to this size is left alone: what can be said of it has bounds enough."""
FEW: Final = 200
"""Maps up to this size are left alone, whatever is in them."""
KEPT: Final = 10
MAX_RESOURCES: Final = 1000
"""Resources in one bundle, which has a handful."""

_SCALARS: Final = frozenset({str, bool, int, float})


def prune_span(span: Any) -> None:
    """Cut down a span as parsed, and its parts."""
    if not isinstance(span, dict):
        return
    fields = cast("dict[str, Any]", span)
    for name in ("attributes", "trace_state"):
        _prune_map(fields.get(name))
    for name in ("context", "parent", "resource"):
        prune_span(fields.get(name))
    _prune_list(fields.get("events"), "name")
    _prune_list(fields.get("links"), "context")


def prune_spans(body: Any) -> None:
    """Cut down the spans of a bulk."""
    if isinstance(body, dict):
        _prune_list(cast("dict[str, Any]", body).get("spans"), "span_id")


def check_resources(body: Any) -> None:
    """Refuse more resources than a bundle can have.

    Raises:
        InvalidRequest: there are more.
    """
    count = len(cast("dict[str, Any]", body)) if isinstance(body, dict) else 0
    if count > MAX_RESOURCES:
        raise InvalidRequest(f"a bundle has at most {MAX_RESOURCES} resources, got {count:,}")


def _prune_list(parts: Any, needed: str) -> None:
    """Cut down what is in a list, and the list behind its first wrong ones: those that lack the field they need."""
    wrong = 0
    items = cast("list[Any]", parts) if isinstance(parts, list) else []
    for place, part in enumerate(items):
        if isinstance(part, dict) and needed in part:
            prune_span(part)
            continue
        wrong += 1
        if wrong == KEPT:
            del items[place + 1 :]
            return


def _prune_map(entries: Any) -> None:
    if not isinstance(entries, dict) or len(cast("dict[str, Any]", entries)) <= FEW:
        return
    found = cast("dict[str, Any]", entries)
    odd = [name for name, value in found.items() if not _is_plain(value)]
    for name in odd[KEPT:]:
        del found[name]


def _is_plain(value: Any) -> bool:
    """Whether a value is one that an attribute may have."""
    if isinstance(value, list):
        return all(type(item) in _SCALARS for item in cast("list[Any]", value))
    return type(value) in _SCALARS
