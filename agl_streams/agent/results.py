"""What an agent returned or raised, as spans of its attempt."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final, cast

from agl_streams import semconv
from agl_streams.errors import AgentError
from agl_streams.logger import get_logger
from agl_streams.models import Span, TraceStatus
from agl_streams.otlp import is_readable_span
from agl_streams.values import finite, shown, type_name

if TYPE_CHECKING:
    from agl_streams.agent.context import AttemptContext

log: Final = get_logger()

MAX_NAMED_TYPES: Final = 10
"""Types of a bad list that an error names."""
MAX_TEXT: Final = 64 * 1024
"""Characters of an exception's message and of its stack trace: enough to read, too little to pass a span's limit."""


def spans_for_result(result: object, context: AttemptContext) -> list[Span]:
    """The spans that a result stands for; they are not emitted.

    Args:
        result: None for nothing, a number for the final reward, or a list of spans, ours or OpenTelemetry's.

    Raises:
        AgentError: anything else; the message names the types.
        InvalidRequest: an OpenTelemetry span that does not fit ours.
    """
    if result is None:
        return []
    if isinstance(result, (list, tuple)):
        return _listed_spans(cast("list[Any] | tuple[Any, ...]", result), context)
    reward = finite(result)
    if reward is None:
        raise AgentError(
            f"the agent returned {shown(result)} of type {type_name(result)}; "
            "return a finite number (the final reward), a list of spans, or None"
        )
    return [context.span(semconv.AGL_ANNOTATION, semconv.reward_attributes({semconv.PRIMARY_REWARD: reward}))]


def exception_span(exception: BaseException, context: AttemptContext) -> Span:
    """The span of an exception that ended an agent, with OpenTelemetry's exception attributes; it is not emitted."""
    return context.span(semconv.AGL_EXCEPTION, exception_attributes(exception), failed(exception))


def exception_attributes(exception: BaseException) -> dict[str, str | bool]:
    """OpenTelemetry's attributes of an exception. Above `MAX_TEXT` a message loses its end, a stack trace its start."""
    stack = "".join(traceback.format_exception(exception))
    return {
        semconv.EXCEPTION_TYPE: type_name(exception),
        semconv.EXCEPTION_MESSAGE: _writable(_message(exception)[:MAX_TEXT]),
        semconv.EXCEPTION_ESCAPED: True,
        semconv.EXCEPTION_STACKTRACE: _writable(stack[-MAX_TEXT:]),
    }


def failed(exception: BaseException) -> TraceStatus:
    """The status of a span that an exception ended."""
    description = _writable(f"{type_name(exception)}: {_message(exception)}"[:MAX_TEXT])
    return TraceStatus(status_code="ERROR", description=description)


def _listed_spans(result: list[Any] | tuple[Any, ...], context: AttemptContext) -> list[Span]:
    rollout_id, attempt_id = context.rollout.rollout_id, context.attempt.attempt_id
    if not result:
        log.warning("agent_returned_no_spans", rollout_id=rollout_id, attempt_id=attempt_id)
        return []
    if all(isinstance(item, Span) for item in result):
        return [_own(item, rollout_id, attempt_id) for item in result]
    if all(is_readable_span(item) for item in result):
        return [Span.from_opentelemetry(item, rollout_id, attempt_id, 0) for item in result]
    names = sorted({type_name(item) for item in result})[:MAX_NAMED_TYPES]
    raise AgentError(
        f"the agent returned a list of {', '.join(names)}; a list must hold spans of one kind, "
        "agl_streams.models.Span or OpenTelemetry's ReadableSpan"
    )


def _own(span: Span, rollout_id: str, attempt_id: str) -> Span:
    """The span as one of this attempt. A span made without ids gets them."""
    if (span.rollout_id or rollout_id, span.attempt_id or attempt_id) != (rollout_id, attempt_id):
        raise AgentError(
            f"the agent of attempt {attempt_id!r} returned span {span.name!r} of rollout {span.rollout_id!r}, "
            f"attempt {span.attempt_id!r}; leave both empty"
        )
    return span.model_copy(update={"rollout_id": rollout_id, "attempt_id": attempt_id})


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    except Exception as error:  # noqa: BLE001 — a broken __str__ must not hide that the agent failed
        return f"<no message: {type(error).__name__} in __str__>"


def _writable(text: str) -> str:
    """The text with lone surrogates replaced, which JSON cannot hold."""
    return text.encode("utf-8", "replace").decode()
