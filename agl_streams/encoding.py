"""A span as it is stored: its opaque payload, and beside it what the server sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agl_streams import bodies
from agl_streams.appending import NewSpan
from agl_streams.errors import InvalidRequest, TooLarge
from agl_streams.sums import sums_of
from agl_streams.values import shown

US_PER_S: Final = 1_000_000
MAX_SEQUENCE: Final = 10**13  # Lua prints a number to 14 digits, so one below this keeps all of its own
MAX_TIME_US: Final = 2**52  # a double, which Lua compares times with, is exact far beyond it
MAX_SPAN_ID: Final = 256


def encode_span(
    payload: bytes,
    *,
    span_id: str,
    name: str,
    attributes: Mapping[str, Any],
    start_time: float | None,
    end_time: float | None,
    sequence_id: int | None,
    max_bytes: int,
) -> NewSpan:
    """The stored form of a span.

    Args:
        payload: the whole span as JSON.
        start_time, end_time: Unix seconds.
        sequence_id: None: the store gives it the next one.
        max_bytes: limit of the payload.

    Raises:
        InvalidRequest: an id or number that no span can have.
        TooLarge: the payload is above the limit.
    """
    if not 0 < len(span_id) <= MAX_SPAN_ID or not span_id.isprintable():
        raise InvalidRequest(f"span id must be 1 to {MAX_SPAN_ID} printable characters, got {shown(span_id)}")
    if sequence_id is not None and not 0 <= sequence_id <= MAX_SEQUENCE:
        raise InvalidRequest(f"sequence_id of span {span_id!r} must be between 0 and {MAX_SEQUENCE}, got {sequence_id}")
    if len(payload) > max_bytes:
        raise TooLarge(f"span {span_id!r} ({name!r}) has {len(payload):,} bytes as JSON, the limit is {max_bytes:,}")
    return NewSpan(
        span_id=span_id,
        sequence="" if sequence_id is None else str(sequence_id),
        first_us=_time(start_time),
        last_us=_time(end_time),
        sums=_sums(attributes),
        payload=bodies.pack(payload),
    )


def _time(seconds: float | None) -> str:
    # Times of spans come from the agents' clocks; what is no plain Unix time is kept in the span and left out of sums.
    if seconds is None or not 0 <= seconds < MAX_TIME_US / US_PER_S:
        return ""
    return str(int(seconds * US_PER_S))


def _sums(attributes: Mapping[str, Any]) -> str:
    sums = sums_of(attributes)
    if not sums.model_calls and not sums.rewards:
        return ""
    counts = (sums.model_calls, sums.prompt_tokens, sums.completion_tokens, sums.incomplete, sums.rewards)
    text = ",".join(map(str, counts))
    return text if sums.reward is None else f"{text},{sums.reward!r}"
