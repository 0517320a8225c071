"""What a value must be before it is stored, and how it is written: JSON with limits, and the ids.

One rule for every input, metadata, statistic and reward: what is accepted here reads back equal, from Python and over
HTTP. Everything is refused in the client, before a byte is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agl_streams.errors import InvalidRequest

if TYPE_CHECKING:
    from pydantic import ValidationError

SHOWN: Final = 80
"""Characters of a bad value that an error shows."""


def shown(value: object) -> str:
    """A bad value as an error shows it: its repr, cut short."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def invalid(error: ValidationError, what: str) -> InvalidRequest:
    """Pydantic's findings as one of our errors: the thing, and the place and fault of the first finding."""
    findings = error.errors(include_url=False, include_context=False)
    first = findings[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return InvalidRequest(f"{what}: {place}: {first['msg']}, got {shown(first['input'])}{more}")
