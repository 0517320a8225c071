"""Filters, order and pages of the queries: pure, over models that are already here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel

from agl_streams.errors import InvalidRequest
from agl_streams.models import PaginatedResult
from agl_streams.values import shown

M = TypeVar("M", bound=BaseModel)

Logic = Literal["and", "or"]
Order = Literal["asc", "desc"]
NO_LIMIT: Final = -1

Condition = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of the matches is wanted, in which order.

    Attributes:
        limit: -1 for all.
        sort_by: a field of the model, or None for the natural order.
    """

    limit: int = NO_LIMIT
    offset: int = 0
    sort_by: str | None = None
    sort_order: Order = "asc"

    def check(self, model: type[BaseModel]) -> None:
        """Raises ``InvalidRequest``: a sort field that the model lacks, an unknown order, a bad limit or offset."""
        fields = tuple(model.model_fields)
        if self.sort_by is not None and self.sort_by not in fields:
            raise InvalidRequest(f"Invalid sort_by: {self.sort_by}, allowed fields are: {', '.join(fields)}")
        if self.sort_order not in ("asc", "desc"):
            raise InvalidRequest(f"sort_order must be asc or desc, got {shown(self.sort_order)}")
        for name, value in (("limit", self.limit), ("offset", self.offset)):
            if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
                raise InvalidRequest(f"{name} must be a whole number, got {shown(value)}")
        if self.limit == 0 or self.limit < NO_LIMIT:
            raise InvalidRequest(f"Limit must be greater than 0 or -1 for no limit, got {self.limit}")
        if self.offset < 0:
            raise InvalidRequest(f"Offset must be greater than or equal to 0, got {self.offset}")


def within(field: str, values: Iterable[Any] | None) -> list[Condition]:
    """The field is one of these; None is no condition, an empty list matches nothing."""
    if values is None:
        return []
    wanted = set(values)
    return [lambda item: getattr(item, field) in wanted]


def exact(field: str, value: Any | None) -> list[Condition]:
    """The field is this; None is no condition."""
    return [] if value is None else [lambda item: getattr(item, field) == value]


def contains(field: str, part: str | None) -> list[Condition]:
    """The field has this part, case and all; None is no condition, a null field never matches."""
    return [] if part is None else [lambda item: (value := getattr(item, field)) is not None and part in value]


def select(items: Iterable[M], conditions: Sequence[Condition], logic: Logic) -> list[M]:
    """The items that fulfil all conditions (``and``) or any (``or``); with no condition, everything."""
    if logic not in ("and", "or"):
        raise InvalidRequest(f"filter_logic must be 'and' or 'or', got {shown(logic)}")
    join = all if logic == "and" else any
    return [item for item in items if not conditions or join(condition(item) for condition in conditions)]


def page_of(matches: list[M], page: Page) -> PaginatedResult[M]:
    """Order the matches and cut the page out of them. Ties keep the natural order."""
    ordered = matches
    if page.sort_by is not None:
        ordered = _sorted(matches, page.sort_by, page.sort_order)
    end = None if page.limit == NO_LIMIT else page.offset + page.limit
    return PaginatedResult(items=ordered[page.offset : end], limit=page.limit, offset=page.offset, total=len(matches))


def _sorted(items: list[M], field: str, order: Order) -> list[M]:
    try:
        return sorted(items, key=lambda item: sort_key(item, field), reverse=order == "desc")
    except TypeError as error:
        raise InvalidRequest(f"sort_by={field} cannot order these values: {error}") from error


def sort_key(item: BaseModel, field: str) -> Any:
    """A field's value for ordering: a null time comes last in ascending order, another null counts as 0 or ''."""
    value = getattr(item, field)
    if value is not None:
        return value
    if field.endswith("_time"):
        return float("inf")
    annotation = str(type(item).model_fields[field].annotation)
    return 0 if "int" in annotation or "float" in annotation else ""
