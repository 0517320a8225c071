"""A place in the log of all shards: what a tail has read so far, as text that it can come back with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from agl_streams.errors import InvalidRequest
from agl_streams.values import shown

BEGINNING: Final = b"0-0"
_ID: Final = re.compile(r"\d{1,20}-\d{1,20}")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The id of the last entry read, for each shard."""

    ids: tuple[bytes, ...]

    @classmethod
    def beginning(cls, shards: int) -> Self:
        """Before everything."""
        return cls((BEGINNING,) * shards)

    @classmethod
    def parse(cls, text: str, shards: int) -> Self:
        """The cursor of a text that ``str`` gave, or of ``0``, which is the beginning.

        Raises:
            InvalidRequest: another text, or one of a namespace with another number of shards.
        """
        if text == "0":
            return cls.beginning(shards)
        parts = text.split(",")
        if len(parts) != shards or not all(map(_ID.fullmatch, parts)):
            raise InvalidRequest(
                f"{shown(text)} is no place in a log of {shards} shards: give an event's id, or 0 for the beginning"
            )
        return cls(tuple(part.encode() for part in parts))

    def moved(self, shard: int, entry_id: str) -> Cursor:
        """The cursor after an entry of a shard."""
        ids = list(self.ids)
        ids[shard] = entry_id.encode()
        return Cursor(tuple(ids))

    def __str__(self) -> str:
        return b",".join(self.ids).decode()
