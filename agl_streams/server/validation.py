"""From bytes to models, with the complaints that FastAPI makes: status 422 and one detail per finding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, cast, get_origin
from urllib.parse import parse_qsl

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json

from agl_streams.errors import InvalidRequest
from agl_streams.values import shown

MAX_FINDINGS: Final = 50
"""Findings in one answer: a list of a million wrong items is told in its first fifty."""
MAX_ECHO_BYTES: Final = 4096
"""A bad input is echoed up to this size, a larger one is cut short."""

_MISSING: Final = {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}


class Unprocessable(Exception):
    """The request does not validate. Status 422.

    Attributes:
        findings: what is wrong, in FastAPI's form.
    """

    def __init__(self, findings: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(f"{len(findings)} findings")
        self.findings = list(findings)


class Unreadable(Exception):
    """The body is no text that could be JSON. Status 400."""


def read_body(data: bytes, content_type: str | None) -> Any:
    """The value of a body: None when it is empty, its text when its type is none of JSON.

    Raises:
        Unprocessable: not JSON.
        Unreadable: not even text, or too deep.
    """
    if not data:
        return None
    if not is_json_type(content_type):
        return data.decode(errors="replace")
    try:
        return from_json(data, cache_strings="keys")
    except ValueError as error:
        raise _json_fault(data, error) from error


def is_json_type(content_type: str | None) -> bool:
    """Whether a body of this type is JSON. A body without a type is."""
    if content_type is None:
        return True
    name = content_type.partition(";")[0].strip().lower()
    return name == "application/json" or (name.startswith("application/") and name.endswith("+json"))


def validated(adapter: TypeAdapter[Any], value: Any, *, required: bool) -> Any:
    """The body as its type; an absent one that may be absent is the type's default.

    Raises:
        Unprocessable: the value does not fit.
    """
    if value is None:
        if required:
            raise Unprocessable([_MISSING])
        value = {}
    try:
        return adapter.validate_python(value, from_attributes=True)  # as FastAPI does: it shapes the findings
    except ValidationError as error:
        raise Unprocessable(_findings(error, "body")) from error


def validated_query(model: type[BaseModel], query: bytes) -> Any:
    """The query parameters as their model. Of a parameter that is given twice the last counts, unless it is a list.

    Raises:
        Unprocessable: a value does not fit.
        InvalidRequest: the query cannot be read at all.
    """
    given: dict[str, Any] = {}
    lists = _list_fields(model)
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True) if query else []
    except ValueError as error:
        raise InvalidRequest(f"the query {shown(query)} cannot be read: {error}") from error
    for name, text in pairs:
        if name in lists:
            given.setdefault(name, []).append(text)
        else:
            given[name] = text
    try:
        return model.model_validate(given) if given else _of_nothing(model)
    except ValidationError as error:
        raise Unprocessable(_findings(error, "query")) from error


def without_nan(value: Any) -> Any:
    """The value with null for NaN and infinity; the same object where there is none."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        changed = {key: new for key, old in items.items() if (new := without_nan(old)) is not old}
        return {**items, **changed} if changed else items
    if isinstance(value, list):
        old_items = cast("list[Any]", value)
        new_items = [without_nan(item) for item in old_items]
        same = all(new is old for new, old in zip(new_items, old_items, strict=True))
        return old_items if same else new_items
    return value


def _json_fault(data: bytes, error: ValueError) -> Exception:
    """FastAPI reads with the standard library; its place and words are what a client may know."""
    try:
        json.loads(data)
    except json.JSONDecodeError as known:
        place, words = known.pos, known.msg
    except (ValueError, RecursionError):
        return Unreadable("There was an error parsing the body")
    else:
        place, words = 0, str(error)  # a lone surrogate, too many levels: JSON for some, but it cannot be stored
    finding: dict[str, Any] = {"type": "json_invalid", "loc": ["body", place], "msg": "JSON decode error", "input": {}}
    return Unprocessable([{**finding, "ctx": {"error": words}}])


def _findings(error: ValidationError, where: str) -> list[dict[str, Any]]:
    return [_finding(details, where) for details in error.errors(include_url=False)[:MAX_FINDINGS]]


def _finding(details: ErrorDetails, where: str) -> dict[str, Any]:
    finding: dict[str, Any] = {**details, "loc": [where, *details["loc"]]}
    if len(to_json(finding["input"], inf_nan_mode="null", fallback=shown)) > MAX_ECHO_BYTES:
        finding["input"] = shown(finding["input"])
    if "ctx" in finding and "error" in finding["ctx"]:
        finding["ctx"] = {**finding["ctx"], "error": {}}  # an exception object: FastAPI writes it so
    return finding


@cache
def _of_nothing(model: type[BaseModel]) -> BaseModel:
    """The model of a request without parameters, which nobody changes. Raises as the model does."""
    return model.model_validate({})


@cache
def _list_fields(model: type[BaseModel]) -> frozenset[str]:
    def is_list(annotation: Any) -> bool:
        return get_origin(annotation) is list or any(map(is_list, getattr(annotation, "__args__", ())))

    return frozenset(name for name, info in model.model_fields.items() if is_list(info.annotation))
