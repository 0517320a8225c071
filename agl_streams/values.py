"""What a value must be before it is stored, and how it is written: JSON within limits, and the forms of ids.

What `check_json_value` accepts reads back equal with `read_json`, from Python and over HTTP. Everything else is refused
in the client, before a byte is sent. The rules are those of the store's semantics, "Values" and "Ids".
"""

from __future__ import annotations

import re
import reprlib
import secrets
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
from pydantic_core import from_json, to_json

from agl_streams.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError

MAX_DEPTH: Final = 128
"""Levels of lists and objects in a value: the JSON parsers that read it back stop at 200, envelope included."""
MAX_VALUE_BYTES: Final = 4 * 1024 * 1024
"""The default limit of one encoded input or metadata; the store passes its configured one."""
MAX_INTEGER_DIGITS: Final = 4300
"""Decimal digits of an integer that Python and the JSON parsers read back."""
MAX_INTEGER_BITS: Final = 14_000
"""The same as a round number of bits, a little less."""
SHOWN: Final = 80
"""Characters of a bad value that an error shows."""

GIVEN_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_RESERVED_IDS: Final = frozenset({"latest", "search"})  # path words of the HTTP API
_MAX_TEXT_ID: Final = 256
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_short: Final = reprlib.Repr()
_short.maxstring = _short.maxother = SHOWN


def check_json_value(value: Any, what: str, max_bytes: int = MAX_VALUE_BYTES) -> bytes:
    """The value as compact UTF-8 JSON. Tuples are written as arrays, integers of any size are kept.

    Args:
        value: an input, metadata, heartbeat statistics or the like.
        what: the name of the value in errors, as in ``input``.
        max_bytes: the limit of the encoded value.

    Raises:
        InvalidRequest: NaN, infinity, a type that JSON lacks, a key that is no string, a lone surrogate, or more than
            `MAX_DEPTH` levels; the message gives the path to the place.
        TooLarge: the limit is passed.
    """
    if not _is_json(value, what, max_bytes):
        _refuse(value, what, 0)
    try:
        data = orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError:
        data = _encode_slowly(value, what)
    if len(data) > max_bytes:
        raise TooLarge(f"{what} has {len(data):,} bytes as JSON, the limit is {max_bytes:,}; store a reference to it")
    return data


def read_json(data: bytes | str) -> Any:
    """What `check_json_value` wrote. Integers keep all digits, which orjson's reader would turn into floats.

    Raises:
        InvalidRequest: not JSON.
    """
    try:
        return from_json(data, cache_strings="keys")
    except ValueError as error:
        raise InvalidRequest(f"not JSON: {error}, got {shown(data)}") from error


def may_not_read_back(data: bytes) -> bool:
    """Whether a JSON text could pass a limit of the parsers, by a glance that costs no parse: too many levels, or an
    integer with too many digits. True is a reason to try, not a finding."""
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        return True
    if len(data) < MAX_INTEGER_DIGITS:
        return False
    # A run of that many digits covers at least one of these windows whole; no number of ordinary size does.
    return any(data[start : start + 64].isdigit() for start in range(0, len(data), 2048))


def check_reward(value: object, what: str = "reward") -> float:
    """A reward as a float; integers and booleans are converted.

    Raises:
        InvalidRequest: not a number, or not a finite one.
    """
    number = finite(value)
    if number is None:
        raise InvalidRequest(f"{what} must be a finite number, got {shown(value)} of type {type_name(value)}")
    return number


def finite(value: object) -> float | None:
    """The value as a float, or None when it is no number or not a finite one.

    Booleans count as 0 and 1; fractions and the scalars of NumPy are numbers too.
    """
    if not isinstance(value, (int, float, Real)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None  # an integer above 1.8e308
    return number if isfinite(number) else None


def check_rollout_id(rollout_id: str) -> str:
    """A rollout id that a caller chose: 1 to 128 of ``A-Z a-z 0-9 . _ ~ -``, and not a path word of the HTTP API.

    Raises:
        InvalidRequest: another form.
    """
    return _check_given_id(rollout_id, "rollout id")


def check_attempt_id(attempt_id: str) -> str:
    """An attempt id, of the same form as a rollout id.

    Raises:
        InvalidRequest: another form.
    """
    return _check_given_id(attempt_id, "attempt id")


def check_namespace(namespace: str) -> str:
    """A namespace, of the same form as a rollout id.

    Raises:
        InvalidRequest: another form.
    """
    return _check_given_id(namespace, "namespace")


def check_worker_id(worker_id: str) -> str:
    """A worker id: 1 to 256 printable characters.

    Raises:
        InvalidRequest: another form.
    """
    return _check_text_id(worker_id, "worker id")


def check_resources_id(resources_id: str) -> str:
    """A resources id: 1 to 256 printable characters.

    Raises:
        InvalidRequest: another form.
    """
    return _check_text_id(resources_id, "resources id")


def new_rollout_id() -> str:
    """A fresh rollout id, ``ro-`` and 12 hex digits."""
    return f"ro-{secrets.token_hex(6)}"


def new_attempt_id() -> str:
    """A fresh attempt id, ``at-`` and 8 hex digits."""
    return f"at-{secrets.token_hex(4)}"


def new_resources_id() -> str:
    """A fresh resources id, ``rs-`` and 12 hex digits."""
    return f"rs-{secrets.token_hex(6)}"


def shown(value: object) -> str:
    """A bad value as an error shows it: its repr, cut short, which also holds for huge, deep and broken ones."""
    return _short.repr(value[:SHOWN] if isinstance(value, bytes) else value)


def type_name(value: object) -> str:
    """The type of a value as an error shows it: with its module, unless that is ``builtins``."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def invalid(error: ValidationError, what: str) -> InvalidRequest:
    """Pydantic's findings as one of our errors: the thing, and the place and fault of the first finding."""
    findings = error.errors(include_url=False, include_context=False)
    first = findings[0]
    place = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return InvalidRequest(f"{what}: {place}: {first['msg']}, got {shown(first['input'])}{more}")


def refuse_unwritable(value: Any, path: str) -> None:
    """Raise for the first lone surrogate or giant integer in a value that is JSON otherwise.

    Raises:
        InvalidRequest: with the path to the place.
    """
    if isinstance(value, str):
        _refuse_surrogate(value, path)
    elif isinstance(value, int):
        _refuse_giant(value, path)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            _refuse_surrogate(key, f"a key of {path}")
            refuse_unwritable(item, f"{path}[{shown(key)}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("Iterable[Any]", value)):
            refuse_unwritable(item, f"{path}[{index}]")


def _check_given_id(text: object, what: str) -> str:
    if not isinstance(text, str) or not GIVEN_ID.fullmatch(text):
        raise InvalidRequest(f"{what} must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ -, got {shown(text)}")
    if text in _RESERVED_IDS:
        raise InvalidRequest(f"{what} {text!r} is a reserved word; choose another")
    return text


def _check_text_id(text: object, what: str) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= _MAX_TEXT_ID or not text.isprintable():
        raise InvalidRequest(f"{what} must be 1 to {_MAX_TEXT_ID} printable characters, got {shown(text)}")
    return text


def _is_json(value: Any, what: str, max_bytes: int) -> bool:
    """Whether a value is JSON, level by level: it costs no path and no recursion as long as nothing is wrong."""
    level: list[Any] = [value]
    seen = 0
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if type(item) not in _PLAIN and not _is_json_item(item, below):
                return False
        if not below:
            return True
        # Each item takes a byte at least. A value that holds itself doubles per level and would never end.
        seen += len(below)
        if seen > max_bytes:
            raise TooLarge(f"{what} has more than {max_bytes:,} items, the limit is {max_bytes:,} bytes as JSON")
        level = below
    return False


def _is_json_item(item: Any, below: list[Any]) -> bool:
    """Whether an item is JSON by itself; what it holds is added to ``below``."""
    if isinstance(item, dict):
        items = cast("dict[Any, Any]", item)
        below.extend(items.values())
        return all(isinstance(key, str) for key in items)
    if isinstance(item, (list, tuple)):
        below.extend(cast("Iterable[Any]", item))
        return True
    if isinstance(item, float):
        return isfinite(item)
    return isinstance(item, (str, int))


def _refuse(value: Any, path: str, depth: int) -> None:
    """Raise for the first thing that is not JSON, with the path to it; called once it is known that there is one."""
    if depth > MAX_DEPTH:
        raise InvalidRequest(f"{path[:SHOWN]}… is deeper than {MAX_DEPTH} levels, or holds itself")
    if isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                raise InvalidRequest(f"{path} has the key {shown(key)}; keys must be strings")
            _refuse(item, f"{path}[{shown(key)}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("Iterable[Any]", value)):
            _refuse(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, float):
        if not isfinite(value):
            raise InvalidRequest(f"{path} is {value!r}; only finite numbers are JSON")
    elif not isinstance(value, (str, int, type(None))):
        raise InvalidRequest(f"{path} is {shown(value)} of type {type_name(value)}, which is not JSON")


def _plain(value: Any) -> Any:
    """What orjson lacks among accepted types: subclasses of float (NumPy's) and of tuple (named tuples)."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    raise TypeError


def _encode_slowly(value: Any, what: str) -> bytes:
    """For what orjson refuses: integers above 64 bits are written, what cannot be written or read back is named."""
    refuse_unwritable(value, what)
    return to_json(value)


def _refuse_surrogate(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = shown(text[max(0, error.start - 10) : error.start + 10])
        raise InvalidRequest(f"{path} has a lone surrogate at character {error.start}, near {place}") from error


def _refuse_giant(number: int, path: str) -> None:
    if number.bit_length() > MAX_INTEGER_BITS:
        raise InvalidRequest(f"{path} is an integer of {number.bit_length():,} bits, the limit is {MAX_INTEGER_BITS:,}")
