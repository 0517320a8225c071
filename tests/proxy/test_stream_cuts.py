"""A stream gives the same capture and the same bytes wherever the network cuts it."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.recorded import Recorded, each, run_stream
from tests.proxy.streams import complete_stream, cut, encode, sampled, streams

CUT_EVERYWHERE_BELOW = 20 * 1024  # bytes; larger streams are cut where it could matter, and at random
NEAR = 8  # bytes around a boundary
RANDOM_CUTS = 2_000

_BOUNDARY = re.compile(rb"\n\n|\r\n\r\n|\r\r")


def places_to_cut(stream: bytes) -> list[int]:
    """Every byte of a small stream; of a large one those near boundaries and multi-byte characters, and random ones."""
    if len(stream) <= CUT_EVERYWHERE_BELOW:
        return list(range(len(stream) + 1))
    centres = [match.end() for match in _BOUNDARY.finditer(stream)]
    centres += [place for place, byte in enumerate(stream) if byte >= 0x80]
    near = {place for centre in centres for place in range(centre - NEAR, centre + NEAR + 1)}
    dice = random.Random(len(stream))
    near |= {dice.randrange(len(stream)) for _ in range(RANDOM_CUTS)}
    return sorted(place for place in near if 0 <= place <= len(stream))


@each("stream")
def test_a_recorded_stream_may_be_cut_anywhere(recorded: Recorded) -> None:
    """Two pieces of a recorded stream, cut at any byte, give the capture and the bytes of the whole."""
    whole, passed = run_stream([recorded.body], drop_usage=not recorded.asked_usage)
    for place in places_to_cut(recorded.body):
        pieces = [recorded.body[:place], recorded.body[place:]]
        assert run_stream(pieces, drop_usage=not recorded.asked_usage) == (whole, passed), place


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_wide_characters_and_any_line_end_may_be_cut_anywhere(line_end: bytes) -> None:
    """CJK, emoji and combined characters survive every cut, with each of the three line ends."""
    texts = ("你好，世界", "👩‍👩‍👧‍👦🏳️‍🌈", "e\u0301 ß", "한국어\n日本")  # noqa: RUF001 — joiners and full-width signs are the point
    stream = encode(complete_stream(texts), line_end)
    whole, _ = run_stream([stream])
    assert whole.choices[0].whole_message()["content"] == "".join(texts)
    for place in range(len(stream) + 1):
        assert run_stream([stream[:place], stream[place:]]) == (whole, stream), place


def test_two_interleaved_tool_calls_may_be_cut_anywhere() -> None:
    """Fragments of two tool calls that alternate are put together by index, whatever the cut."""
    fragments = [
        {"index": 0, "id": "call-a", "type": "function", "function": {"name": "get_", "arguments": ""}},
        {"index": 1, "id": "call-b", "type": "function", "function": {"name": "send", "arguments": '{"to'}},
        {"index": 0, "function": {"name": "weather", "arguments": '{"city": "東'}},
        {"index": 1, "function": {"arguments": '": 1}'}},
        {"index": 0, "function": {"arguments": '京"}'}},
    ]
    events = complete_stream()
    events[3:3] = [sampled(0, [n], {"tool_calls": [fragment]}) for n, fragment in enumerate(fragments)]
    stream = encode(events)
    whole, _ = run_stream([stream])
    assert whole.choices[0].whole_message()["tool_calls"] == [
        {"id": "call-a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "東京"}'}},
        {"id": "call-b", "type": "function", "function": {"name": "send", "arguments": '{"to": 1}'}},
    ]
    for place in range(len(stream) + 1):
        assert run_stream([stream[:place], stream[place:]]) == (whole, stream), place


@given(stream=streams(), places=st.lists(st.integers(0, 10_000), max_size=20), drop_usage=st.booleans())
def test_any_pieces_of_any_stream_give_the_same(stream: bytes, places: list[int], drop_usage: bool) -> None:
    """Capture and passed bytes depend on the stream alone, never on its pieces."""
    whole, passed = run_stream([stream], drop_usage=drop_usage)
    assert run_stream(cut(stream, places), drop_usage=drop_usage) == (whole, passed)
    assert whole.terminated
    assert drop_usage or passed == stream


@given(stream=streams())
def test_a_stream_may_come_byte_by_byte(stream: bytes) -> None:
    """A stream in single bytes gives the capture and the bytes of the whole."""
    assert run_stream([bytes([byte]) for byte in stream]) == run_stream([stream])


@given(garbage=st.binary(max_size=200), places=st.lists(st.integers(0, 200), max_size=5))
def test_bytes_that_are_no_stream_pass_unchanged(garbage: bytes, places: list[int]) -> None:
    """Whatever a server sends as an event stream reaches the client as it is."""
    assert run_stream(cut(garbage, places))[1] == garbage
