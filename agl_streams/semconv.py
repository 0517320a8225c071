"""Names of spans and attributes.

Three families: Agent-lightning's (``agentlightning.*``, so that its adapters and ours read each other's spans),
OpenTelemetry's (``gen_ai.*``, ``exception.*``), and our own (``agl_streams.*``) for what neither has a name for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agl_streams.values import check_reward, finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agl_streams.span import Span

# Span names.
AGL_ANNOTATION: Final = "agentlightning.annotation"
AGL_MESSAGE: Final = "agentlightning.message"
AGL_OBJECT: Final = "agentlightning.object"
AGL_EXCEPTION: Final = "agentlightning.exception"
AGL_OPERATION: Final = "agentlightning.operation"
AGL_VIRTUAL: Final = "agentlightning.virtual"

# Who a span belongs to: resource attributes, or span attributes, which win.
ROLLOUT_ID: Final = "agentlightning.rollout_id"
ATTEMPT_ID: Final = "agentlightning.attempt_id"
SPAN_SEQUENCE_ID: Final = "agentlightning.span_sequence_id"

# Span attributes. A prefix is followed by ".<index>" or ".<key>".
REWARD: Final = "agentlightning.reward"
"""Prefix: ``<prefix>.<i>.name`` and ``<prefix>.<i>.value``; index 0 is the primary reward."""
REWARD_NAME: Final = "name"
REWARD_VALUE: Final = "value"
PRIMARY_REWARD: Final = "primary"
"""The name that a reward without a name gets."""
PRIMARY_REWARD_VALUE: Final = f"{REWARD}.0.{REWARD_VALUE}"
LINK: Final = "agentlightning.link"
LINK_KEY_MATCH: Final = "key_match"
LINK_VALUE_MATCH: Final = "value_match"
TAG: Final = "agentlightning.tag"
MESSAGE_BODY: Final = "agentlightning.message.body"
OBJECT_TYPE: Final = "agentlightning.object.type"
OBJECT_LITERAL: Final = "agentlightning.object.literal"
OBJECT_JSON: Final = "agentlightning.object.json"
OPERATION_NAME: Final = "agentlightning.operation.name"
OPERATION_INPUT: Final = "agentlightning.operation.input"
OPERATION_OUTPUT: Final = "agentlightning.operation.output"

# OpenTelemetry: exceptions.
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
EXCEPTION_ESCAPED: Final = "exception.escaped"

# OpenTelemetry: generative AI.
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_SYSTEM: Final = "gen_ai.system"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_SEED: Final = "gen_ai.request.seed"
GEN_AI_REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
GEN_AI_REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
GEN_AI_REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
GEN_AI_REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
"""JSON text of the messages that were sent."""
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
"""JSON text of the messages that came back, one per choice."""
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
"""JSON text of the tools that the request offered."""
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

# Ours: what the proxy records of one model call.
CALL_COMPLETE: Final = "agl_streams.call.complete"
"""bool. Only a span with true here may become training data; the attribute also marks a span as a model call."""
CALL_INCOMPLETE_REASON: Final = "agl_streams.call.incomplete_reason"
CALL_PROMPT_TOKEN_IDS: Final = "agl_streams.call.prompt_token_ids"
"""list[int]."""
CALL_CHOICE: Final = "agl_streams.call.choices"
"""Prefix of the choices' attributes, see `choice_key`."""
CHOICE_TOKEN_IDS: Final = "token_ids"
"""list[int]."""
CHOICE_LOGPROBS: Final = "logprobs"
"""list[float], natural logarithm, one per token id."""
CHOICE_FINISH_REASON: Final = "finish_reason"
CHOICE_STOP_REASON: Final = "stop_reason"
CALL_KIND: Final = "agl_streams.call.kind"
CALL_STREAMED: Final = "agl_streams.call.streamed"
CALL_STATUS_CODE: Final = "agl_streams.call.status_code"
CALL_FIRST_TOKEN_S: Final = "agl_streams.call.first_token_s"
CALL_DURATION_S: Final = "agl_streams.call.duration_s"
CALL_UPSTREAM: Final = "agl_streams.call.upstream"
CALL_SYSTEM_FINGERPRINT: Final = "agl_streams.call.system_fingerprint"
CALL_TOOL_CALLS: Final = "agl_streams.call.tool_calls"
"""JSON text, a list with the tool calls of each choice."""

KIND_CHAT: Final = "chat"
"""The value of `CALL_KIND` for ``/v1/chat/completions``; also OpenTelemetry's operation name."""

# Ours: elsewhere.
REASON: Final = "agl_streams.reason"
"""Metadata key under which a rollout or attempt says on the wire why it ended as it did."""


def choice_key(index: int, field: str) -> str:
    """The attribute of one choice of a model call.

    Args:
        index: the choice's index, from 0.
        field: one of the ``CHOICE_*`` names.
    """
    return f"{CALL_CHOICE}.{index}.{field}"


def reward_attributes(rewards: Mapping[str, float]) -> dict[str, str | float]:
    """The attributes of a span that carries rewards.

    Args:
        rewards: dimensions by name; the first is the primary one.

    Raises:
        InvalidRequest: a value is not a finite number; the message names its dimension.
    """
    attributes: dict[str, str | float] = {}
    for index, (name, value) in enumerate(rewards.items()):
        attributes[f"{REWARD}.{index}.{REWARD_NAME}"] = name
        attributes[f"{REWARD}.{index}.{REWARD_VALUE}"] = check_reward(value, f"reward {name!r}")
    return attributes


def reward_value(span: Span) -> float | None:
    """The primary reward that a span carries, or None. A value that is no finite number is no reward."""
    return reward_in(span.attributes)


def reward_in(attributes: Mapping[str, Any]) -> float | None:
    """The primary reward that a span with these attributes carries, or None."""
    return finite(attributes.get(PRIMARY_REWARD_VALUE))


def is_model_call(span: Span) -> bool:
    """Whether the proxy recorded the span. A client's own instrumentation of the same call is not counted again."""
    return is_call_in(span.attributes)


def is_call_in(attributes: Mapping[str, Any]) -> bool:
    """Whether these are the attributes of a model call that the proxy recorded."""
    return CALL_COMPLETE in attributes
