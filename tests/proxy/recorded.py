"""The recorded answers of a real vLLM, and what a capture of them must hold, read from the recorder's parsed events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agl_proxy.answer import Answer
from agl_proxy.capture import StreamCapture

DATA = Path(__file__).resolve().parents[1] / "data" / "vllm"


@dataclass(frozen=True)
class Recorded:
    """One recorded exchange.

    Attributes:
        body: the answer's bytes.
        events: of a stream, as parsed by the recorder; the terminator is the text ``[DONE]``.
    """

    name: str
    request: dict[str, Any]
    status: int
    content_type: str
    body: bytes
    events: list[Any] = field(default_factory=list[Any])
    response: Any = None

    @property
    def asked_usage(self) -> bool:
        """Whether the client of that call asked for the usage event."""
        options: dict[str, Any] | None = self.request.get("stream_options")
        return options is not None and options.get("include_usage", False)


@dataclass
class Expected:
    """What a capture must hold of one choice."""

    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    content: str = ""
    tool_arguments: dict[int, str] = field(default_factory=dict[int, str])


def load(path: Path) -> Recorded:
    """One recorded exchange from its file."""
    data = json.loads(path.read_text())
    body = data["raw"].encode() if "raw" in data else compact(data["response"])
    request: Any = data["request"]["body"]
    return Recorded(
        name=path.stem,
        request={} if isinstance(request, str) else request,
        status=data["status"],
        content_type=data["content_type"],
        body=body,
        events=data.get("events") or parsed_events(data.get("raw", "")),
        response=data.get("response"),
    )


def folder(name: str) -> list[Recorded]:
    """All recorded exchanges of a folder."""
    return [load(path) for path in sorted((DATA / name).glob("*.json"))]


def each(name: str) -> pytest.MarkDecorator:
    """Run a test with each recorded exchange of a folder, as its argument ``recorded``."""
    return pytest.mark.parametrize("recorded", folder(name), ids=lambda recorded: recorded.name)


def compact(value: Any) -> bytes:
    """JSON as vLLM writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parsed_events(raw: str) -> list[Any]:
    """The events of a stream with LF line ends, for files that lack the recorder's."""
    data = [block.removeprefix("data: ") for block in raw.split("\n\n") if block.startswith("data: ")]
    return [text if text == "[DONE]" else json.loads(text) for text in data]


def stream_of(events: list[Any]) -> bytes:
    """A stream with these events, in vLLM's form."""
    return b"".join(b"data: " + (b"[DONE]" if event == "[DONE]" else compact(event)) + b"\n\n" for event in events)


def expected_of_whole(response: dict[str, Any]) -> dict[int, Expected]:
    """What a capture of an answer in one piece must hold, by choice."""
    found: dict[int, Expected] = {}
    for choice in response["choices"]:
        logprobs: Any = choice["logprobs"] and choice["logprobs"]["content"]
        message = choice["message"]
        found[choice["index"]] = Expected(
            choice["token_ids"],
            None if logprobs is None else [entry["logprob"] for entry in logprobs],
            choice["finish_reason"],
            choice["stop_reason"],
            message["content"] or "",
            {i: call["function"]["arguments"] for i, call in enumerate(message.get("tool_calls") or [])},
        )
    return found


def expected_of_stream(events: list[Any]) -> dict[int, Expected]:
    """What a capture of a stream must hold, by choice."""
    found: dict[int, Expected] = {}
    for event in events:
        choices: list[dict[str, Any]] = [] if event == "[DONE]" else event["choices"]
        for choice in choices:
            _expect_more(found.setdefault(choice["index"], Expected()), choice)
    return found


def _expect_more(expected: Expected, choice: dict[str, Any]) -> None:
    if choice.get("token_ids") is not None:
        expected.token_ids = [*(expected.token_ids or []), *choice["token_ids"]]
    if choice.get("logprobs"):
        values = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        expected.logprobs = [*(expected.logprobs or []), *values]
    if choice.get("finish_reason"):
        expected.finish_reason, expected.stop_reason = choice["finish_reason"], choice.get("stop_reason")
    expected.content += choice["delta"].get("content") or ""
    calls: list[dict[str, Any]] = choice["delta"].get("tool_calls") or []
    for call in calls:
        before = expected.tool_arguments.get(call["index"], "")
        expected.tool_arguments[call["index"]] = before + (call["function"].get("arguments") or "")


def captured(answer: Answer) -> dict[int, Expected]:
    """The same of a capture."""
    found: dict[int, Expected] = {}
    for index, choice in answer.choices.items():
        message = choice.whole_message()
        calls = enumerate(message.get("tool_calls", []))
        found[index] = Expected(
            choice.token_ids,
            choice.logprobs,
            choice.finish_reason,
            choice.stop_reason,
            message.get("content", ""),
            {i: call["function"]["arguments"] for i, call in calls},
        )
    return found


def run_stream(pieces: list[bytes], *, drop_usage: bool = False) -> tuple[Answer, bytes]:
    """Feed a stream to a fresh capture; what was read, and the bytes that the client got."""
    answer = Answer(streamed=True, status_code=200)
    capture = StreamCapture(answer, drop_usage=drop_usage)
    out = [capture.feed(piece) for piece in pieces]
    out.append(capture.finish())
    out.append(capture.take_held())
    return answer, b"".join(out)
