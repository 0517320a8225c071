"""The policy server's wire against the recorded answers of vLLM, key for key and refusal for refusal."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agl_streams.demo.chat_request import MAX_CHOICES, MODEL, NEUTRAL
from tests.demo.serving import QUESTION, RECORDING, REQUEST, STREAM, Served, always, served

DATA = Path(__file__).resolve().parents[1] / "data" / "vllm"
RECORDED_MODEL = "tiny"
WHOLE = (
    "chat_plain",
    "chat_token_ids",
    "chat_token_ids_logprobs",
    "chat_logprobs_only",
    "chat_logprobs_top0",
    "chat_n2",
    "chat_stop_string",
    "chat_max_completion_tokens",
    "chat_prompt_text",
)
STREAMS = (
    "stream_plain",
    "stream_token_ids",
    "stream_token_ids_logprobs_usage",
    "stream_usage",
    "stream_n2",
    "stream_stop_string",
)
ERRORS = sorted(path.stem for path in (DATA / "errors").glob("*.json"))

Shape = frozenset[tuple[str, str]]


def recorded(folder: str, name: str) -> dict[str, Any]:
    return json.loads((DATA / folder / f"{name}.json").read_text())


def ours(value: Any) -> Any:
    """A recorded request or answer with our model's name in place of the recorded one."""
    return json.loads(json.dumps(value).replace(f'"{RECORDED_MODEL}"', f'"{MODEL}"'))


def shape(value: Any) -> Shape:
    """Every path in a JSON value with the type that stands there; items of a list share a path.

    How many bytes a token has says nothing of the form, so what stands in ``bytes`` is left out.
    """
    return frozenset(_walk("", value))


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    yield path, type(value).__name__
    if isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]  JSON of any type
            yield from _walk(f"{path}.{key}", item)
    if isinstance(value, list) and not path.endswith(".bytes"):
        for item in value:  # pyright: ignore[reportUnknownVariableType]  JSON of any type
            yield from _walk(f"{path}[]", item)


@pytest.fixture
async def server() -> AsyncGenerator[Served]:
    """A server that says "divide"."""
    async with served(always("divide")) as server:
        yield server


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_answer_has_the_recorded_form(server: Served, name: str) -> None:
    """To the recorded request the server answers with the recorded keys, nulls included, and types."""
    theirs = recorded("whole", name)
    reply = await server.post(ours(theirs["request"]["body"]))
    assert (reply.status, reply.content_type) == (theirs["status"], theirs["content_type"])
    assert shape(reply.json) == shape(theirs["response"])
    assert list(reply.json) == list(theirs["response"])


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_has_the_recorded_form(server: Served, name: str) -> None:
    """To the recorded request the server streams events of the recorded forms only, the same first and last."""
    theirs = recorded("stream", name)
    reply = await server.post(ours(theirs["request"]["body"]))
    assert (reply.status, reply.content_type) == (theirs["status"], theirs["content_type"])
    forms = [shape(event) for event in reply.events]
    known = [shape(event) for event in theirs["events"] if event != "[DONE]"]
    assert (forms[0], forms[-1]) == (known[0], known[-1])
    assert set(forms) <= set(known)
    assert theirs["raw"].endswith("data: [DONE]\n\n")
    assert reply.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("name", ERRORS)
async def test_a_refusal_is_the_recorded_one(server: Served, name: str) -> None:
    """What vLLM refuses the server refuses, with the same status and the same words."""
    theirs = recorded("errors", name)
    body = theirs["request"]["body"]
    raw = body.encode() if isinstance(body, str) else json.dumps(ours(body)).encode()
    content_type = "text/plain" if name == "err_content_type" else "application/json"
    if theirs["request"]["method"] == "GET":
        reply = await server.get(theirs["request"]["path"])
    else:
        reply = await server.post(raw, **{"content-type": content_type})
    expected = theirs["response"] if "response" in theirs else json.loads(theirs["raw"])
    message = json.dumps(expected).replace(f"aliases: {RECORDED_MODEL}", f"aliases: {MODEL}")
    assert (reply.status, reply.content_type) == (theirs["status"], theirs["content_type"])
    assert reply.json == json.loads(message)


async def test_other_paths_answer_as_recorded(server: Served) -> None:
    """The list of models has vLLM's keys, an unknown path its refusal, and health is an empty 200."""
    models, nothing = recorded("other", "models"), recorded("other", "err_404_path")
    assert shape((await server.get("/v1/models")).json) == shape(models["response"])
    reply = await server.post({}, nothing["request"]["path"])
    assert (reply.status, reply.json) == (nothing["status"], nothing["response"])
    health = await server.get("/health")
    assert (health.status, health.body) == (200, b"")


async def test_prompt_ids_come_once_for_each_choice(server: Served) -> None:
    """In a stream of two choices only the two role events carry the prompt's ids."""
    reply = await server.post({**REQUEST, **RECORDING, **STREAM, "n": 2})
    with_prompt = [event for event in reply.events if "prompt_token_ids" in event]
    assert [event["choices"][0]["index"] for event in with_prompt] == [0, 1]
    assert with_prompt == reply.events[:2]
    assert with_prompt[0]["prompt_token_ids"] == always("divide").tokenizer.encode_chat([("user", QUESTION)])


async def test_tokens_and_usage_agree(server: Served) -> None:
    """Each token of an answer has a log-probability, its text and its bytes, and the usage counts all choices."""
    answer = (await server.post({**REQUEST, **RECORDING, "n": 3, "top_logprobs": 2})).json
    tokenizer = always("divide").tokenizer
    for choice in answer["choices"]:
        entries = choice["logprobs"]["content"]
        assert [bytes(entry["bytes"]) for entry in entries] == [b"divide", b"<|end|>"]
        assert [entry["token"] for entry in entries] == ["divide", "<|end|>"]
        assert choice["token_ids"] == [tokenizer.piece_id("divide"), tokenizer.end_id]
        assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
        assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in entries)
    usage = answer["usage"]
    assert (usage["completion_tokens"], usage["prompt_tokens"]) == (6, len(answer["prompt_token_ids"]))
    assert usage["total_tokens"] == usage["completion_tokens"] + usage["prompt_tokens"]


@pytest.mark.parametrize("name", sorted(NEUTRAL))
async def test_what_is_not_supported_is_refused(server: Served, name: str) -> None:
    """A parameter that would change what is sampled is a 400 that names it, unless its value asks for nothing."""
    for neutral in NEUTRAL[name]:
        assert (await server.post({**REQUEST, name: neutral})).status == 200
    reply = await server.post({**REQUEST, name: 0.25})
    assert (reply.status, reply.json["error"]["param"]) == (400, name)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": MAX_CHOICES + 1}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1020}, "max_tokens"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "body.messages.0.content.str"),
        ({"seed": 1.5}, "body.seed"),
    ],
)
async def test_bad_values_are_refused(server: Served, options: dict[str, Any], param: str) -> None:
    """A value that cannot be used is a 400 in vLLM's form that names its place."""
    reply = await server.post({**REQUEST, **options})
    error = reply.json["error"]
    assert (reply.status, error["code"], error["param"]) == (400, 400, param)


@pytest.mark.parametrize("body", [b"[1]", b'"hi"', b"\xff\xfe", b'{"messages": "\xff"}'])
async def test_a_body_that_is_no_request_is_refused(server: Served, body: bytes) -> None:
    """JSON that is no object, and what is no JSON at all, is a 400."""
    reply = await server.post(body)
    assert (reply.status, reply.json["error"]["code"]) == (400, 400)


async def test_an_id_can_be_given(server: Served) -> None:
    """The id of an answer is the one in the header or the body, or else a fresh one."""
    by_body = await server.post({**REQUEST, "request_id": "from-body"})
    by_header = await server.post({**REQUEST, "request_id": "from-body"}, **{"X-Request-Id": "from-header"})
    fresh = [(await server.post(REQUEST)).json["id"] for _ in range(2)]
    assert by_body.json["id"] == "chatcmpl-from-body"
    assert by_header.json["id"] == "chatcmpl-from-header"
    assert fresh[0] != fresh[1]


async def test_content_may_come_in_parts(server: Served) -> None:
    """A message of text parts is the same prompt as one of a single text."""
    parts = [{"type": "text", "text": QUESTION[:9]}, {"type": "text", "text": QUESTION[9:]}]
    in_parts = await server.post({**REQUEST, **RECORDING, "messages": [{"role": "user", "content": parts}]})
    whole = await server.post({**REQUEST, **RECORDING})
    assert in_parts.json["prompt_token_ids"] == whole.json["prompt_token_ids"]
