"""Streams and answers made for tests, in vLLM's form, and Hypothesis strategies for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.proxy.recorded import compact

LINE_ENDS = (b"\n", b"\r\n", b"\r")


def chunk(index: int = 0, delta: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk of a stream; ``fields`` beside the delta belong to the choice."""
    choice = {"index": index, "delta": delta or {}, "logprobs": None, "finish_reason": None, **fields}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "tiny", "choices": [choice]}


def sampled(index: int, ids: list[int], delta: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk with sampled tokens; the log-probability of token n is -n/8."""
    content: list[dict[str, Any]] = [
        {"token": f"t{n}", "logprob": -n / 8, "bytes": [], "top_logprobs": []} for n in ids
    ]
    return chunk(index, delta, token_ids=ids, logprobs={"content": content}, **fields)


def role_chunk(index: int = 0, prompt: tuple[int, ...] = (1, 2, 3)) -> dict[str, Any]:
    """The first chunk of a choice, which carries the prompt."""
    return {**chunk(index, {"role": "assistant", "content": ""}), "prompt_token_ids": list(prompt)}


def usage_chunk(completion_tokens: int, prompt_tokens: int = 3) -> dict[str, Any]:
    """The usage-only event."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    return {"id": "chatcmpl-1", "model": "tiny", "choices": [], "usage": usage, "system_fingerprint": "fp"}


def complete_stream(texts: tuple[str, ...] = ("a", "b")) -> list[Any]:
    """The events of a sound stream of one choice, a token for each text."""
    tokens = [sampled(0, [n + 10], {"content": text}) for n, text in enumerate(texts)]
    end = sampled(0, [2], finish_reason="stop", stop_reason=None)
    return [role_chunk(), *tokens, end, usage_chunk(len(texts) + 1), "[DONE]"]


def encode(events: list[Any], line_end: bytes = b"\n") -> bytes:
    """A stream with these events and this kind of line end."""
    return b"".join(b"data: " + (b"[DONE]" if event == "[DONE]" else compact(event)) + line_end * 2 for event in events)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """The stream in the pieces that cuts at these places leave."""
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


_line_end = st.sampled_from(LINE_ENDS)
_text = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["日本語", "👩‍👩‍👧", "\r\n", "data: [DONE]"]
)
_filler = st.sampled_from([b": keep-alive", b"event: message", b"id: 7", b"retry: 10"])


@st.composite
def _event(draw: st.DrawFn, event: Any) -> bytes:
    """One event on the wire: perhaps with comments and fields beside its data, perhaps with a space less."""
    data = b"[DONE]" if event == "[DONE]" else compact(event)
    lines = [*draw(st.lists(_filler, max_size=2))]
    lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from([b"data: ", b"data:"])) + data)
    ends = [draw(_line_end) for _ in lines]
    empty_line = draw(_line_end)
    if ends[-1] + empty_line == b"\r\n":  # would be one line end, not two
        empty_line = b"\r"
    return b"".join(line + end for line, end in zip(lines, ends, strict=True)) + empty_line


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Any stream of two choices with text of any kind and interleaved tool calls, on any wire."""
    events: list[Any] = [role_chunk(0), role_chunk(1)]
    for position in range(draw(st.integers(0, 6))):
        choice = draw(st.integers(0, 1))
        ids = draw(st.lists(st.integers(0, 200_000), max_size=3))
        call = {"index": draw(st.integers(0, 1)), "id": f"call-{position}", "function": {"arguments": draw(_text)}}
        delta = draw(st.sampled_from([{}, {"tool_calls": [call]}, {"content": draw(_text)}]))
        events.append(sampled(choice, ids, delta))
    events += [sampled(index, [2], finish_reason="stop", stop_reason=None) for index in (0, 1)]
    events += [usage_chunk(draw(st.integers(0, 20))), "[DONE]"]
    return b"".join(draw(_event(event)) for event in events) + draw(st.sampled_from([b"", b": bye\n\n", b"\n"]))
