"""When a capture may become training data: never unless everything that can be checked agrees.

Each reason is a constant; it stands in the span, is counted, and is what an operator searches for.
"""

from __future__ import annotations

from math import isfinite
from operator import countOf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agl_proxy.answer import Answer, Choice

# The call itself went wrong.
CLIENT_GONE: Final = "client_gone"
"""The client hung up before its answer was complete; the call was cancelled."""
PROXY_STOPPED: Final = "proxy_stopped"
"""The proxy was stopped while the call ran."""
UPSTREAM_UNREACHABLE: Final = "upstream_unreachable"
"""No connection to the inference server; nothing was sent."""
UPSTREAM_SILENT: Final = "upstream_silent"
"""It took the request and did not begin to answer in time."""
UPSTREAM_STALLED: Final = "upstream_stalled"
"""It began to answer and then sent nothing for too long."""
UPSTREAM_TOO_SLOW: Final = "upstream_too_slow"
"""The call as a whole took too long."""
UPSTREAM_BROKE_OFF: Final = "upstream_broke_off"
"""The connection ended, or broke HTTP's rules, before the answer was complete."""
UPSTREAM_STATUS: Final = "upstream_status"
"""It answered with a status other than 200."""
UPSTREAM_ERROR: Final = "upstream_error"
"""It reported an error inside its answer."""
PROXY_ERROR: Final = "proxy_error"
"""A fault of the proxy itself."""

# The answer came, but not as it must be.
UNREADABLE: Final = "unreadable"
"""The answer is not what a chat completion looks like."""
TOO_LARGE: Final = "too_large"
"""The answer, or one event of it, is above the proxy's limit, or its span above the store's."""
NO_TERMINATOR: Final = "no_terminator"
"""The stream ended without ``[DONE]``."""
ABORTED: Final = "aborted"
"""A choice has the finish reason ``abort`` (the server dropped it, as before a weight update) or ``error``."""
NO_CHOICES: Final = "no_choices"
UNFINISHED: Final = "unfinished"
"""A choice has no finish reason."""
NO_PROMPT_TOKEN_IDS: Final = "no_prompt_token_ids"
PROMPT_CONFLICT: Final = "prompt_conflict"
"""Choices of one call report different prompts."""
NO_TOKEN_IDS: Final = "no_token_ids"
NO_LOGPROBS: Final = "no_logprobs"
BAD_VALUES: Final = "bad_values"
"""A token id that is no integer, or a log-probability that is no finite number."""
LOGPROBS_MISMATCH: Final = "logprobs_mismatch"
"""A choice has more or fewer log-probabilities than token ids."""
NO_USAGE: Final = "no_usage"
USAGE_MISMATCH: Final = "usage_mismatch"
"""The token ids of all choices together are not as many as the server says it sampled."""

CALL_FAILED: Final = frozenset(
    {
        CLIENT_GONE,
        PROXY_STOPPED,
        UPSTREAM_UNREACHABLE,
        UPSTREAM_SILENT,
        UPSTREAM_STALLED,
        UPSTREAM_TOO_SLOW,
        UPSTREAM_BROKE_OFF,
        UPSTREAM_STATUS,
        UPSTREAM_ERROR,
        PROXY_ERROR,
        ABORTED,
        NO_TERMINATOR,
    }
)
"""Reasons that make the span's status an error; with the others the agent got its answer and only the capture lacks."""

_BAD_FINISH = frozenset({"abort", "error"})
_HTTP_OK = 200


def incomplete_reason(answer: Answer) -> str | None:
    """Why an answer must not be trained on; None when it is complete."""
    if answer.fault is not None:
        return answer.fault
    if answer.status_code != _HTTP_OK:
        return UPSTREAM_STATUS
    choices = list(answer.choices.values())
    if any(choice.finish_reason in _BAD_FINISH for choice in choices):
        return ABORTED
    if not answer.terminated:
        return NO_TERMINATOR
    if not choices:
        return NO_CHOICES
    return _prompt_reason(answer) or _choices_reason(choices) or _usage_reason(answer, choices)


def without_ids(answer: Answer) -> bool:
    """Whether the server answered well and gave no token ids at all: it is not set up for training."""
    return answer.terminated and bool(answer.choices) and all(c.token_ids is None for c in answer.choices.values())


def _prompt_reason(answer: Answer) -> str | None:
    if not answer.prompt_token_ids:
        return NO_PROMPT_TOKEN_IDS
    return None if _are_integers(answer.prompt_token_ids) else BAD_VALUES


def _choices_reason(choices: list[Choice]) -> str | None:
    return next((reason for choice in choices if (reason := _choice_reason(choice)) is not None), None)


def _choice_reason(choice: Choice) -> str | None:
    ids, logprobs = choice.token_ids, choice.logprobs
    if choice.finish_reason is None:
        return UNFINISHED
    if ids is None:
        return NO_TOKEN_IDS
    if logprobs is None and ids:
        return NO_LOGPROBS
    if not _are_integers(ids) or not _are_numbers(logprobs or []):
        return BAD_VALUES
    return None if len(ids) == len(logprobs or []) else LOGPROBS_MISMATCH


def _usage_reason(answer: Answer, choices: list[Choice]) -> str | None:
    if answer.completion_tokens is None:
        return NO_USAGE
    sampled = sum(len(choice.token_ids or []) for choice in choices)
    return None if sampled == answer.completion_tokens else USAGE_MISMATCH


def _are_integers(values: list[Any]) -> bool:
    return countOf(map(type, values), int) == len(values)


def _are_numbers(values: list[Any]) -> bool:
    if countOf(map(type, values), float) == len(values):
        return isfinite(sum(values))
    return all(type(value) in (int, float) and isfinite(value) for value in values)
