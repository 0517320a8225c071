"""The span of a model call: names, attributes, status and times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agl_proxy import checks
from agl_proxy.capture import read_whole
from agl_proxy.record import Call, bare_span_of, span_of
from agl_proxy.shaping import shape
from agl_streams import semconv
from agl_streams.semconv import choice_key
from tests.proxy.recorded import DATA, Recorded, each, load
from tests.proxy.support import STREAM, Proxy
from tests.support.engine_standin import FINGERPRINT, PROMPT_IDS, TOKENS


def call_of(recorded: Recorded) -> Call:
    """A recorded exchange as a finished call."""
    request = shape(json.dumps(recorded.request).encode())
    call = Call("ro-1", "at-1", 7, request, "http://engine:8000")
    call.answer.status_code = recorded.status
    read_whole(call.answer, recorded.body)
    return call


@each("whole")
def test_every_recorded_answer_becomes_a_span_with_its_tokens(recorded: Recorded) -> None:
    """Prompt ids, and ids and log-probabilities of each choice stand under their names, exactly."""
    call = call_of(recorded)
    span = span_of(call, checks.incomplete_reason(call.answer))
    response = recorded.response
    attributes = span.attributes
    assert attributes.get(semconv.CALL_PROMPT_TOKEN_IDS) == response["prompt_token_ids"]
    for choice in response["choices"]:
        logprobs: Any = choice["logprobs"] and [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert attributes.get(choice_key(choice["index"], semconv.CHOICE_TOKEN_IDS)) == choice["token_ids"]
        assert attributes.get(choice_key(choice["index"], semconv.CHOICE_LOGPROBS)) == logprobs
        assert attributes.get(choice_key(choice["index"], semconv.CHOICE_STOP_REASON)) == choice["stop_reason"]
    reasons = [choice["finish_reason"] for choice in response["choices"]]
    assert attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] == reasons
    assert attributes[semconv.CALL_COMPLETE] is (checks.incomplete_reason(call.answer) is None)


def test_the_span_follows_opentelemetrys_names() -> None:
    """Name, operation, models, request parameters and usage are where the GenAI conventions have them."""
    recorded = load(DATA / "whole" / "chat_tools_auto_forced.json")
    span = span_of(call_of(recorded), None)
    assert (span.name, span.rollout_id, span.attempt_id, span.sequence_id) == ("chat tiny", "ro-1", "at-1", 7)
    assert span.parent_id is None
    expected = {
        semconv.GEN_AI_OPERATION_NAME: "chat",
        semconv.GEN_AI_REQUEST_MODEL: "tiny",
        semconv.GEN_AI_RESPONSE_MODEL: "tiny",
        semconv.GEN_AI_RESPONSE_ID: recorded.response["id"],
        semconv.GEN_AI_REQUEST_TEMPERATURE: 1.0,
        semconv.GEN_AI_REQUEST_MAX_TOKENS: 200,
        semconv.GEN_AI_REQUEST_SEED: 7,
        semconv.GEN_AI_USAGE_INPUT_TOKENS: recorded.response["usage"]["prompt_tokens"],
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: recorded.response["usage"]["completion_tokens"],
        semconv.SERVER_ADDRESS: "engine",
        semconv.SERVER_PORT: 8000,
        semconv.CALL_UPSTREAM: "http://engine:8000",
        semconv.CALL_KIND: "chat",
        semconv.CALL_STREAMED: False,
        semconv.CALL_STATUS_CODE: 200,
    }
    assert {name: span.attributes[name] for name in expected} == expected


def test_messages_are_json_texts() -> None:
    """What was sent, offered and sampled can be read back."""
    recorded = load(DATA / "whole" / "chat_tools_auto_forced.json")
    attributes: dict[str, Any] = dict(span_of(call_of(recorded), None).attributes)
    assert json.loads(attributes[semconv.GEN_AI_INPUT_MESSAGES]) == recorded.request["messages"]
    assert json.loads(attributes[semconv.GEN_AI_TOOL_DEFINITIONS]) == recorded.request["tools"]
    (message,) = json.loads(attributes[semconv.GEN_AI_OUTPUT_MESSAGES])
    calls = recorded.response["choices"][0]["message"]["tool_calls"]
    assert message == {"role": "assistant", "tool_calls": calls}
    assert json.loads(attributes[semconv.CALL_TOOL_CALLS]) == [calls]


async def test_a_streamed_call_has_its_times(proxy: Proxy) -> None:
    """A streamed call's span holds its tokens, and how long the first one and the whole call took."""
    await proxy.post({**STREAM, "n": 2})
    (span,) = proxy.store.spans
    attributes: dict[str, Any] = dict(span.attributes)
    assert attributes[semconv.CALL_COMPLETE] is True
    assert attributes[semconv.CALL_STREAMED] is True
    assert attributes[semconv.CALL_SYSTEM_FINGERPRINT] == FINGERPRINT
    assert attributes[semconv.CALL_PROMPT_TOKEN_IDS] == PROMPT_IDS
    for index in (0, 1):
        assert attributes[choice_key(index, semconv.CHOICE_TOKEN_IDS)] == [token.id for token in TOKENS]
        assert attributes[choice_key(index, semconv.CHOICE_LOGPROBS)] == [token.logprob for token in TOKENS]
    assert 0 < attributes[semconv.CALL_FIRST_TOKEN_S] <= attributes[semconv.CALL_DURATION_S]
    assert span.start_time is not None
    assert span.end_time == pytest.approx(span.start_time + attributes[semconv.CALL_DURATION_S])


@pytest.mark.parametrize(("reason", "status"), [(checks.NO_TOKEN_IDS, "OK"), (checks.CLIENT_GONE, "ERROR")])
def test_only_a_call_that_failed_has_an_error_status(reason: str, status: str) -> None:
    """An agent that got its answer made a call that was fine; only its capture is not."""
    call = call_of(load(DATA / "whole" / "chat_plain.json"))
    span = span_of(call, reason)
    assert span.status.status_code == status
    assert span.attributes[semconv.CALL_INCOMPLETE_REASON] == reason
    assert (semconv.ERROR_TYPE in span.attributes) is (status == "ERROR")


def test_odd_request_values_do_not_reach_the_span() -> None:
    """A temperature that is a text, or a seed that is true, is the server's to refuse and no attribute."""
    body: dict[str, Any] = {
        "model": 7,
        "temperature": "hot",
        "seed": True,
        "stop": ["a", 1],
        "n": 0,
        "max_tokens": None,
    }
    span = span_of(Call("ro-1", "at-1", 1, shape(json.dumps(body).encode()), "http://engine"), checks.UPSTREAM_STATUS)
    assert span.name == "chat"
    assert span.attributes[semconv.GEN_AI_REQUEST_STOP_SEQUENCES] == ["a"]
    assert semconv.GEN_AI_REQUEST_TEMPERATURE not in span.attributes
    assert semconv.GEN_AI_REQUEST_SEED not in span.attributes


def test_a_bare_span_is_never_complete() -> None:
    """What the store cannot take in full says so, and holds no tokens."""
    span = bare_span_of(call_of(load(DATA / "whole" / "chat_token_ids_logprobs.json")), checks.TOO_LARGE)
    assert span.attributes[semconv.CALL_COMPLETE] is False
    assert not [name for name in span.attributes if "token_ids" in name or "messages" in name]
