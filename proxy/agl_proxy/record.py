"""One model call as a span: OpenTelemetry's names where it has them, ours for tokens and completeness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from agl_proxy import checks
from agl_proxy.answer import Answer
from agl_proxy.shaping import ChatRequest
from agl_streams import clock, semconv
from agl_streams.models import Span, TraceStatus

# Request fields that OpenTelemetry has a name for, and the types that it may have.
_REQUEST_FIELDS: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("temperature", semconv.GEN_AI_REQUEST_TEMPERATURE, (int, float)),
    ("top_p", semconv.GEN_AI_REQUEST_TOP_P, (int, float)),
    ("frequency_penalty", semconv.GEN_AI_REQUEST_FREQUENCY_PENALTY, (int, float)),
    ("presence_penalty", semconv.GEN_AI_REQUEST_PRESENCE_PENALTY, (int, float)),
    ("max_tokens", semconv.GEN_AI_REQUEST_MAX_TOKENS, (int,)),
    ("max_completion_tokens", semconv.GEN_AI_REQUEST_MAX_TOKENS, (int,)),
    ("seed", semconv.GEN_AI_REQUEST_SEED, (int,)),
    ("n", semconv.GEN_AI_REQUEST_CHOICE_COUNT, (int,)),
)


@dataclass(slots=True)
class Call:
    """One admitted model call.

    Attributes:
        sequence_id: the number that the store gave when it admitted the call.
        upstream: base URL of the inference server.
        first_token_at: reading of the monotonic clock when the first token of a stream arrived, in seconds.
    """

    rollout_id: str
    attempt_id: str
    sequence_id: int
    request: ChatRequest
    upstream: str
    answer: Answer = field(default_factory=Answer)
    started_at: float = field(default_factory=clock.now_s)
    started: float = field(default_factory=clock.monotonic_s)
    first_token_at: float | None = None


def span_of(call: Call, reason: str | None) -> Span:
    """The span of a call that is over.

    Args:
        reason: why it must not be trained on, from `checks.incomplete_reason`; None when it is complete.

    Raises:
        InvalidRequest: the answer holds a value that no span attribute may have.
    """
    duration_s = clock.monotonic_s() - call.started
    attributes = _facts(call, duration_s, reason)
    _put_request(attributes, call.request)
    _put_answer(attributes, call.answer)
    return _span(call, attributes, duration_s, reason)


def bare_span_of(call: Call, reason: str) -> Span:
    """The span of a call that the store cannot take in full: without messages and tokens, and never complete."""
    duration_s = clock.monotonic_s() - call.started
    return _span(call, _facts(call, duration_s, reason), duration_s, reason)


def _span(call: Call, attributes: dict[str, Any], duration_s: float, reason: str | None) -> Span:
    failed = reason in checks.CALL_FAILED
    return Span.from_attributes(
        name=f"{semconv.KIND_CHAT} {call.request.model}".rstrip(),
        attributes=attributes,
        rollout_id=call.rollout_id,
        attempt_id=call.attempt_id,
        sequence_id=call.sequence_id,
        start_time=call.started_at,
        end_time=call.started_at + duration_s,
        status=TraceStatus(
            status_code="ERROR" if failed else "OK", description=call.answer.fault_detail or reason if failed else None
        ),
    )


def _facts(call: Call, duration_s: float, reason: str | None) -> dict[str, Any]:
    """What is known of every call, whatever became of it."""
    answer = call.answer
    server = urlsplit(call.upstream)
    facts = {
        semconv.GEN_AI_OPERATION_NAME: semconv.KIND_CHAT,
        semconv.GEN_AI_REQUEST_MODEL: call.request.model,
        semconv.SERVER_ADDRESS: server.hostname,
        semconv.SERVER_PORT: server.port,
        semconv.CALL_KIND: semconv.KIND_CHAT,
        semconv.CALL_COMPLETE: reason is None,
        semconv.CALL_INCOMPLETE_REASON: reason,
        semconv.CALL_STREAMED: answer.streamed,
        semconv.CALL_STATUS_CODE: answer.status_code,
        semconv.CALL_FIRST_TOKEN_S: None if call.first_token_at is None else call.first_token_at - call.started,
        semconv.CALL_DURATION_S: duration_s,
        semconv.CALL_UPSTREAM: call.upstream,
        semconv.ERROR_TYPE: reason if reason in checks.CALL_FAILED else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _put_request(attributes: dict[str, Any], request: ChatRequest) -> None:
    body = request.body
    for name, attribute, types in _REQUEST_FIELDS:
        value = body.get(name)
        if isinstance(value, types) and not isinstance(value, bool):
            attributes[attribute] = value
    stop = body.get("stop")
    if isinstance(stop, str):
        attributes[semconv.GEN_AI_REQUEST_STOP_SEQUENCES] = [stop]
    elif isinstance(stop, list):
        texts = [text for text in cast("list[Any]", stop) if isinstance(text, str)]
        attributes[semconv.GEN_AI_REQUEST_STOP_SEQUENCES] = texts
    for name, attribute in (("messages", semconv.GEN_AI_INPUT_MESSAGES), ("tools", semconv.GEN_AI_TOOL_DEFINITIONS)):
        if body.get(name) is not None:
            attributes[attribute] = orjson.dumps(body[name]).decode()


def _put_answer(attributes: dict[str, Any], answer: Answer) -> None:
    found: dict[str, Any] = {
        semconv.GEN_AI_RESPONSE_ID: answer.response_id,
        semconv.GEN_AI_RESPONSE_MODEL: answer.model,
        semconv.CALL_SYSTEM_FINGERPRINT: answer.system_fingerprint,
        semconv.GEN_AI_USAGE_INPUT_TOKENS: answer.prompt_tokens,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: answer.completion_tokens,
        semconv.CALL_PROMPT_TOKEN_IDS: answer.prompt_token_ids,
    }
    choices = [choice for _, choice in sorted(answer.choices.items())]
    for choice in choices:
        for name, value in (
            (semconv.CHOICE_TOKEN_IDS, choice.token_ids),
            (semconv.CHOICE_LOGPROBS, choice.logprobs),
            (semconv.CHOICE_FINISH_REASON, choice.finish_reason),
            (semconv.CHOICE_STOP_REASON, choice.stop_reason),
        ):
            found[semconv.choice_key(choice.index, name)] = value
    attributes.update((name, value) for name, value in found.items() if value is not None)
    if not choices:
        return
    attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = [choice.finish_reason or "" for choice in choices]
    messages = [choice.whole_message() for choice in choices]
    attributes[semconv.GEN_AI_OUTPUT_MESSAGES] = orjson.dumps(messages).decode()
    calls = [message.get("tool_calls", []) for message in messages]
    if any(calls):
        attributes[semconv.CALL_TOOL_CALLS] = orjson.dumps(calls).decode()
