"""One recorded model call, read back from its span, or the reason why it is no training data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from agl_streams import semconv
from agl_streams.errors import InvalidRequest
from agl_streams.values import finite, read_json

if TYPE_CHECKING:
    from agl_streams.span import Span

UNKNOWN_REASON: Final = "incomplete"
NO_PROMPT_TOKEN_IDS: Final = "no_prompt_token_ids"
NO_RESPONSE_TOKEN_IDS: Final = "no_response_token_ids"
NO_LOGPROBS: Final = "no_logprobs"
LENGTHS_DISAGREE: Final = "lengths_disagree"
NOT_TOKEN_IDS: Final = "not_token_ids"
NOT_LOGPROBS: Final = "not_logprobs"

_CHOICES: Final = f"{semconv.CALL_CHOICE}."


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a call.

    Attributes:
        token_ids: what was sampled, the stop token included.
        logprobs: natural logarithms, one per token id.
        message: the answer as it was read by the agent, if the span has it.
    """

    index: int
    token_ids: list[int]
    logprobs: list[float]
    message: Any
    finish_reason: str | None
    stop_reason: str | int | None


@dataclass(frozen=True, slots=True)
class Call:
    """One complete and consistent call: every choice has as many log-probabilities as token ids, and at least one."""

    span: Span
    prompt_token_ids: list[int]
    messages: Any
    choices: list[Choice]


def read_call(span: Span) -> Call | str:
    """The call that a span recorded, or why it must not become training data: one of this module's reasons, or the
    one that the proxy gave."""
    if span.attributes.get(semconv.CALL_COMPLETE) is not True:
        reason = span.attributes.get(semconv.CALL_INCOMPLETE_REASON)
        return reason if isinstance(reason, str) and reason else UNKNOWN_REASON
    prompt = _token_ids(span, semconv.CALL_PROMPT_TOKEN_IDS, NO_PROMPT_TOKEN_IDS)
    if isinstance(prompt, str):
        return prompt
    choices = _read_choices(span)
    if isinstance(choices, str):
        return choices
    return Call(span, prompt, _parsed(span, semconv.GEN_AI_INPUT_MESSAGES), choices)


def _read_choices(span: Span) -> list[Choice] | str:
    answers = _parsed(span, semconv.GEN_AI_OUTPUT_MESSAGES)
    choices: list[Choice] = []
    for position, index in enumerate(_choice_indexes(span)):
        choice = _read_choice(span, index, _item(answers, position))
        if isinstance(choice, str):
            return choice
        choices.append(choice)
    return choices or NO_RESPONSE_TOKEN_IDS


def _read_choice(span: Span, index: int, message: Any) -> Choice | str:
    token_ids = _token_ids(span, semconv.choice_key(index, semconv.CHOICE_TOKEN_IDS), NO_RESPONSE_TOKEN_IDS)
    if isinstance(token_ids, str):
        return token_ids
    logprobs = _logprobs(span, semconv.choice_key(index, semconv.CHOICE_LOGPROBS))
    if isinstance(logprobs, str):
        return logprobs
    if len(logprobs) != len(token_ids):
        return LENGTHS_DISAGREE
    finish = span.attributes.get(semconv.choice_key(index, semconv.CHOICE_FINISH_REASON))
    stop = span.attributes.get(semconv.choice_key(index, semconv.CHOICE_STOP_REASON))
    return Choice(
        index=index,
        token_ids=token_ids,
        logprobs=logprobs,
        message=message,
        finish_reason=finish if isinstance(finish, str) else None,
        stop_reason=stop if isinstance(stop, (str, int)) else None,
    )


def _choice_indexes(span: Span) -> list[int]:
    indexes = {key.removeprefix(_CHOICES).partition(".")[0] for key in span.attributes if key.startswith(_CHOICES)}
    return sorted(int(index) for index in indexes if index.isascii() and index.isdigit())


def _token_ids(span: Span, key: str, missing: str) -> list[int] | str:
    values = span.attributes.get(key)
    if not isinstance(values, list) or not values:
        return missing
    # A boolean is an int to Python, yet no token id.
    token_ids = [value for value in values if type(value) is int and value >= 0]
    return token_ids if len(token_ids) == len(values) else NOT_TOKEN_IDS


def _logprobs(span: Span, key: str) -> list[float] | str:
    values = span.attributes.get(key)
    if not isinstance(values, list) or not values:
        return NO_LOGPROBS
    logprobs = [n for value in values if not isinstance(value, bool) and (n := finite(value)) is not None]
    return logprobs if len(logprobs) == len(values) else NOT_LOGPROBS


def _parsed(span: Span, key: str) -> Any:
    """The JSON text of an attribute as a value. Text that is not JSON stays text: it is for people, tokens are not."""
    text = span.attributes.get(key)
    if not isinstance(text, str):
        return None
    try:
        return read_json(text)
    except InvalidRequest:
        return text


def _item(answers: Any, position: int) -> Any:
    if not isinstance(answers, list):
        return None
    messages = cast("list[Any]", answers)
    return messages[position] if position < len(messages) else None
