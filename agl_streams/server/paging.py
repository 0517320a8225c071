"""What a query says of its page, checked in the order and the words of the contract."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from agl_streams.errors import InvalidRequest
from agl_streams.server.schemas import PageFields


def arguments(fields: PageFields, model: type[BaseModel]) -> dict[str, Any]:
    """The fields of a query as keyword arguments of the store.

    Raises:
        InvalidRequest: an unknown sort field, a bad limit or offset.
    """
    allowed = tuple(model.model_fields)
    if fields.sort_by is not None and fields.sort_by not in allowed:
        raise InvalidRequest(f"Invalid sort_by: {fields.sort_by}, allowed fields are: {', '.join(allowed)}")
    if fields.limit == 0 or fields.limit < -1:
        raise InvalidRequest("Limit must be greater than 0 or -1 for no limit")
    if fields.offset < 0:
        raise InvalidRequest("Offset must be greater than or equal to 0")
    return {name: getattr(fields, name) for name in type(fields).model_fields}


def given(body: BaseModel, required: tuple[str, ...]) -> dict[str, Any]:
    """The fields that an update names.

    Raises:
        InvalidRequest: one of ``required`` is named and null.
    """
    found = {name: getattr(body, name) for name in type(body).model_fields if name in body.model_fields_set}
    for name in required:
        if name in found and found[name] is None:
            raise InvalidRequest(f"{name} is invalid; it cannot be a null value.")
    return found
