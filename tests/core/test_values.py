"""Values before they are stored: what is JSON, what is not and where, limits, rewards."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams.errors import InvalidRequest, TooLarge
from agl_streams.values import MAX_DEPTH, check_json_value, check_reward, may_not_read_back, read_json, shown

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
json_values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner))


class Colour(StrEnum):
    RED = "red"


class Plain(Enum):
    A = 1


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Pair(NamedTuple):
    a: Any
    b: Any


class Fraction(float):
    """A number type of its own, as NumPy's are."""


@given(json_values)
def test_what_is_accepted_reads_back_equal(value: Any) -> None:
    """Every JSON value comes back with all types, and is read the same by the standard library."""
    data = check_json_value(value, "input")
    assert repr(read_json(data)) == repr(value)
    assert repr(json.loads(data)) == repr(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, None, True, "ü"]}, '{"a":[1,null,true,"ü"]}'),
        ((1, (2,)), "[1,[2]]"),
        (Pair(1, [2]), "[1,[2]]"),
        (OrderedDict[str, int](b=1, a=2), '{"b":1,"a":2}'),
        (Colour.RED, '"red"'),
        (Fraction(1.5), "1.5"),
        (2**64, "18446744073709551616"),
        ([-(10**40), Fraction(0.5), Pair(1, 2)], f"[-{10**40},0.5,[1,2]]"),
        (1e-7, "1e-7"),
    ],
)
def test_values_are_written_compactly(value: object, data: str) -> None:
    """Compact JSON, raw non-ASCII text, subclasses as what they are, integers of any size."""
    assert check_json_value(value, "input").decode() == data


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "input is nan"),
        ({"a": [1, {"b": -math.inf}]}, r"input\['a'\]\[1\]\['b'\] is -inf"),
        ({"a": {1: 2}}, r"input\['a'\] has the key 1; keys must be strings"),
        ([b"x"], r"input\[0\] is b'x' of type bytes, which is not JSON"),
        ({"s": {1}}, r"input\['s'\] is \{1\} of type set"),
        ([Plain.A], r"input\[0\] is <Plain.A: 1> of type .*Plain, which is not JSON"),
        ([Unprintable()], r"input\[0\] is <Unprintable instance at .*> of type .*Unprintable"),
        ("a\ud800", r"input has a lone surrogate at character 1, near 'a\\ud800'"),
        ({"\udfff": 1}, r"a key of input has a lone surrogate"),
        ({"k": [2**70, "\ud800"]}, r"input\['k'\]\[1\] has a lone surrogate"),
        ([10**5000], r"input\[0\] is an integer of 16,610 bits"),
    ],
)
def test_what_is_not_json_is_refused_with_its_place(value: object, message: str) -> None:
    """The error names the path to the value and what is wrong with it."""
    with pytest.raises(InvalidRequest, match=message):
        check_json_value(value, "input")


def nested(levels: int) -> Any:
    """A number within that many lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_limited() -> None:
    """A value at the limit passes, and reads back within an envelope; one level more is refused."""
    read_json(b"[[" + check_json_value(nested(MAX_DEPTH), "input") + b"]]")
    with pytest.raises(InvalidRequest, match=f"deeper than {MAX_DEPTH} levels"):
        check_json_value(nested(MAX_DEPTH + 1), "input")


def test_a_value_that_holds_itself_is_refused() -> None:
    """A cycle ends in an error, however wide it is."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidRequest, match="or holds itself"):
        check_json_value(loop, "input")
    loop.append(loop)
    with pytest.raises(TooLarge, match="input has more than 1,000 items"):
        check_json_value(loop, "input", max_bytes=1000)


def test_size_is_limited_after_encoding() -> None:
    """The limit counts bytes of JSON; the error names size and limit."""
    assert len(check_json_value("ü" * 4, "input", max_bytes=10)) == 10
    with pytest.raises(TooLarge, match="metadata has 12 bytes as JSON, the limit is 10"):
        check_json_value("ü" * 5, "metadata", max_bytes=10)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'"\\ud800"', b"[" * 300])
def test_what_is_no_json_cannot_be_read(data: bytes) -> None:
    """Broken text is an error of ours that shows its start."""
    with pytest.raises(InvalidRequest, match=r"not JSON: .*, got b"):
        read_json(data)


def test_an_ordinary_value_is_not_suspected() -> None:
    """Long lists of token ids and log-probabilities pass the glance for texts that may not read back."""
    data = check_json_value({"ids": list(range(10**6, 10**6 + 5000)), "logprobs": [-1 / 3] * 5000}, "input")
    assert not may_not_read_back(data)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_a_giant_number_is_suspected_wherever_it_stands(before: int, after: int) -> None:
    """An integer above the parsers' limit never escapes the glance."""
    assert may_not_read_back(b"[" + b" " * before + b"1" * 4301 + b"," * after + b"]")


@pytest.mark.parametrize(("value", "reward"), [(1, 1.0), (True, 1.0), (0.5, 0.5), (-3, -3.0), (Fraction(2), 2.0)])
def test_a_reward_becomes_a_float(value: Any, reward: float) -> None:
    """Integers and booleans are numbers."""
    assert repr(check_reward(value)) == repr(reward)


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, [1.0], 10**400, 1j])
def test_other_rewards_are_refused(value: Any) -> None:
    """NaN, infinity, numbers beyond floats and other types are no rewards."""
    with pytest.raises(InvalidRequest, match="score must be a finite number, got "):
        check_reward(value, "score")


@pytest.mark.parametrize("value", ["x" * 10_000, b"x" * 10_000, ["x" * 100] * 10_000, {1: nested(150)}])
def test_a_bad_value_is_shown_short(value: object) -> None:
    """An error never repeats a large value."""
    assert len(shown(value)) < 1000
