"""What all models of the wire are made from: the frozen base, `UNSET`, and a page of a query."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Final, Generic, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from agl_streams.errors import InvalidRequest
from agl_streams.values import invalid, may_not_read_back, read_json, refuse_unwritable

T = TypeVar("T")


class Unset(enum.Enum):
    """The type of `UNSET`. An enumeration, so that it stays one object through pickling and copying."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""Not passed, as opposed to None, in the update calls: the field keeps its value."""


class Wire(BaseModel):
    """What all models share: frozen, and NaN and infinity written as JSON's usual extension, which reads back."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    def to_json(self) -> bytes:
        """The model as compact UTF-8 JSON, nulls and extras included.

        Raises:
            InvalidRequest: a string has a lone surrogate, or a free value is not JSON that reads back; the message
                names the place.
        """
        try:
            data = self.__pydantic_serializer__.to_json(self)
        except PydanticSerializationError as error:
            refuse_unwritable(self.model_dump(), type(self).__name__)
            raise InvalidRequest(f"{type(self).__name__} cannot be written as JSON: {error}") from error
        if may_not_read_back(data):
            read_json(data)
        return data

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """The model of a JSON text. For many strings, as in spans, twice as fast as ``model_validate_json``.

        Raises:
            InvalidRequest: not JSON, or not such a model; the message names the place.
        """
        return cls.checked(read_json(data), cls.__name__)

    @classmethod
    def checked(cls, fields: object, what: str) -> Self:
        """The model of these fields, with the library's own error.

        Args:
            fields: a mapping, or an instance of the model.
            what: the name of the thing in the error.

        Raises:
            InvalidRequest: the fields do not validate; the message names the first that does not.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise invalid(error, what) from error


class OpenWire(Wire):
    """A model that keeps keys it does not know."""

    model_config = ConfigDict(extra="allow")


class PaginatedResult(Wire, Generic[T], Sequence[T]):
    """One page of a query, and a sequence of the page's items.

    Attributes:
        limit: the page size asked for, -1 for no limit.
        offset: matches before this page.
        total: matches before paging.
    """

    items: list[T]
    limit: int
    offset: int
    total: int

    def __repr__(self) -> str:
        first = f"{self.items[0]!r}{', …' if len(self.items) > 1 else ''}" if self.items else "empty"
        return f"<{type(self).__name__} {self.offset}:{self.offset + len(self.items)} of {self.total}: {first}>"

    def __str__(self) -> str:
        return repr(self)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:  # pyright: ignore[reportIncompatibleMethodOverride] — items, not field names
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.items[index]
