"""The capture of every answer that a real vLLM gave, against what the recorder's own parser saw in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agl_proxy import checks
from agl_proxy.answer import Answer
from agl_proxy.capture import read_whole
from tests.proxy.recorded import (
    DATA,
    Expected,
    Recorded,
    captured,
    each,
    expected_of_stream,
    expected_of_whole,
    folder,
    load,
    run_stream,
    stream_of,
)

# The same request, once in one piece and once streamed.
TWINS = [
    ("chat_token_ids_logprobs", "stream_token_ids_logprobs_usage"),
    ("chat_n2", "stream_n2"),
    ("chat_tools_auto_forced", "stream_tools_auto_forced"),
    ("chat_eos_bias", "stream_eos_bias"),
    ("chat_stop_string", "stream_stop_string"),
]
# Here vLLM itself parses the cut-off tool call differently when it streams; the tokens are the same.
TWINS_IN_TOKENS = [("chat_tools_named", "stream_tools_named"), ("chat_tools_required", "stream_tools_required")]


def read(recorded: Recorded) -> Answer:
    """The capture of a recorded answer in one piece."""
    answer = Answer(status_code=recorded.status)
    assert read_whole(answer, recorded.body) is recorded.body
    return answer


def expected_reason(choices: list[Expected], *, has_prompt: bool, has_usage: bool) -> str | None:
    """What must be missing in an answer, by its parsed form alone."""
    if any(choice.finish_reason == "abort" for choice in choices):
        return checks.ABORTED
    if not has_prompt:
        return checks.NO_PROMPT_TOKEN_IDS
    if any(choice.logprobs is None for choice in choices):
        return checks.NO_LOGPROBS
    return None if has_usage else checks.NO_USAGE


def test_there_are_recorded_answers_of_both_kinds() -> None:
    """The folders of recorded answers are not empty, or the tests below would pass for nothing."""
    assert len(folder("whole")) >= 40
    assert len(folder("stream")) >= 12


@each("whole")
def test_a_whole_answer_is_read_exactly(recorded: Recorded) -> None:
    """Ids, log-probabilities, reasons, text, tool calls and usage of an answer in one piece are the recorded ones."""
    answer = read(recorded)
    response = recorded.response
    assert captured(answer) == expected_of_whole(response)
    assert answer.prompt_token_ids == response["prompt_token_ids"]
    assert answer.completion_tokens == response["usage"]["completion_tokens"]
    assert answer.prompt_tokens == response["usage"]["prompt_tokens"]
    assert (answer.response_id, answer.model) == (response["id"], response["model"])
    assert answer.system_fingerprint == response["system_fingerprint"]


@each("whole")
def test_a_whole_answer_is_judged_by_what_it_has(recorded: Recorded) -> None:
    """An answer is complete exactly when its prompt ids, response ids and log-probabilities were recorded."""
    choices = list(expected_of_whole(recorded.response).values())
    has_prompt = bool(recorded.response["prompt_token_ids"])
    assert checks.incomplete_reason(read(recorded)) == expected_reason(choices, has_prompt=has_prompt, has_usage=True)


@each("stream")
def test_a_stream_is_read_exactly(recorded: Recorded) -> None:
    """Ids, log-probabilities, reasons, text and tool calls of a stream are those of its parsed events."""
    answer, out = run_stream([recorded.body])
    chunks = [event for event in recorded.events if event != "[DONE]"]
    prompts = [chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids")]
    fingerprints = [chunk["system_fingerprint"] for chunk in chunks if chunk.get("system_fingerprint")]
    assert out == recorded.body
    assert answer.terminated
    assert captured(answer) == expected_of_stream(recorded.events)
    assert answer.prompt_token_ids == (prompts[0] if prompts else None)
    assert answer.system_fingerprint == fingerprints[-1]


@each("stream")
def test_a_stream_is_judged_by_what_it_has(recorded: Recorded) -> None:
    """A stream is complete exactly when ids, log-probabilities and usage were recorded in it."""
    answer, _ = run_stream([recorded.body])
    choices = list(expected_of_stream(recorded.events).values())
    chunks: list[dict[str, Any]] = [event for event in recorded.events if event != "[DONE]"]
    reason = expected_reason(
        choices,
        has_prompt=any(chunk.get("prompt_token_ids") for chunk in chunks),
        has_usage=any(chunk.get("usage") for chunk in chunks),
    )
    assert checks.incomplete_reason(answer) == reason


@pytest.mark.parametrize(("whole", "streamed"), TWINS + TWINS_IN_TOKENS)
def test_a_streamed_call_gives_the_tokens_of_its_whole_twin(whole: str, streamed: str) -> None:
    """The same sampled answer gives the same tokens whether it was streamed or not."""
    in_one_piece = read(load(DATA / "whole" / f"{whole}.json"))
    as_stream, _ = run_stream([load(DATA / "stream" / f"{streamed}.json").body])
    assert tokens_of(as_stream) == tokens_of(in_one_piece)
    assert as_stream.prompt_token_ids == in_one_piece.prompt_token_ids


@pytest.mark.parametrize(("whole", "streamed"), TWINS)
def test_a_streamed_call_gives_the_message_of_its_whole_twin(whole: str, streamed: str) -> None:
    """The same sampled answer gives the same message whether it was streamed or not."""
    in_one_piece = read(load(DATA / "whole" / f"{whole}.json"))
    as_stream, _ = run_stream([load(DATA / "stream" / f"{streamed}.json").body])
    assert messages_of(as_stream) == messages_of(in_one_piece)


@pytest.mark.parametrize("name", ["eos", "tool", "utf8"])
def test_chunks_with_an_empty_delta_keep_their_tokens(name: str) -> None:
    """Half characters, end tokens and buffered tool-call markup come with an empty delta and lose no token."""
    events = json.loads((DATA / "events" / f"{name}.json").read_text())["events"]
    answer, _ = run_stream([stream_of(events)])
    assert captured(answer) == expected_of_stream(events)
    empty = [choice for event in events for choice in event["choices"] if not choice["delta"]]
    assert sum(len(choice["token_ids"]) for choice in empty) > 0


@each("litellm_proxy")
def test_an_answer_through_a_gateway_that_loses_ids_is_never_complete(recorded: Recorded) -> None:
    """What LiteLLM's proxy leaves of the token ids is refused with a reason, never patched up."""
    if recorded.status != 200:
        answer = Answer(status_code=recorded.status)
    elif recorded.response is None:
        answer, _ = run_stream([recorded.body])
    else:
        answer = read(recorded)
    assert checks.incomplete_reason(answer) is not None


def test_an_answer_that_the_server_aborted_is_incomplete() -> None:
    """The finish reason ``abort`` makes an otherwise sound stream incomplete."""
    tail = json.loads((DATA / "tails" / "stream_aborted_by_server.json").read_text())["raw_tail"]
    answer, _ = run_stream([tail[tail.index("data: ") :].encode()])
    assert answer.terminated
    assert checks.incomplete_reason(answer) == checks.ABORTED


def test_an_error_event_before_the_terminator_is_incomplete() -> None:
    """An engine that dies sends an error and then ``[DONE]``: the capture is incomplete for the error."""
    tail = json.loads((DATA / "tails" / "stream_engine_killed.json").read_text())["raw_tail"]
    events = [line for line in tail.split("\n") if line.startswith("data: ")]
    answer, _ = run_stream(["\n\n".join([*events, ""]).encode()])
    assert answer.terminated
    assert checks.incomplete_reason(answer) == checks.UPSTREAM_ERROR
    assert "EngineCore encountered an issue" in answer.fault_detail


def test_a_stream_that_just_stops_is_incomplete() -> None:
    """What a server leaves behind on SIGTERM has no terminator, which is the reason."""
    tail = json.loads((DATA / "tails" / "stream_server_sigterm.json").read_text())["raw_tail"]
    events = [line for line in tail.split("\n") if line.startswith("data: ")]
    answer, _ = run_stream(["\n\n".join([*events, ""]).encode()])
    assert checks.incomplete_reason(answer) == checks.NO_TERMINATOR


def tokens_of(answer: Answer) -> dict[int, tuple[Any, ...]]:
    """The trained-on part of a capture."""
    return {i: (c.token_ids, c.logprobs, c.finish_reason, c.stop_reason) for i, c in answer.choices.items()}


def messages_of(answer: Answer) -> dict[int, dict[str, Any]]:
    """The messages of a capture; ids of tool calls are random and left out."""
    messages = {index: choice.whole_message() for index, choice in answer.choices.items()}
    for message in messages.values():
        for call in message.get("tool_calls", []):
            call.pop("id")
    return messages
