"""From what a caller gives to what functions take: checked, encoded, ids made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast, get_args

from agl_streams import bodies
from agl_streams.errors import InvalidRequest, NotFound
from agl_streams.function_types import NewRollout
from agl_streams.models import AttemptStatus, EnqueueRolloutRequest, RolloutConfig, RolloutMode, RolloutStatus
from agl_streams.values import GIVEN_ID, check_resources_id, check_rollout_id, new_rollout_id, shown, type_name

T = TypeVar("T")

US_PER_S: Final = 1_000_000
REASON_LIMIT: Final = 512  # characters: a reason is one line for an operator, the exception span has the rest
MAX_LIMIT_S: Final = 1_000_000_000.0  # 30 years: more would leave what a double adds to a time exactly

MODES: Final = get_args(RolloutMode)
ROLLOUT_STATUSES: Final = get_args(RolloutStatus)
ATTEMPT_STATUSES: Final = get_args(AttemptStatus)


def new_rollout(request: EnqueueRolloutRequest, latest_resources: str | None, max_bytes: int) -> NewRollout:
    """A rollout as functions take it.

    Args:
        latest_resources: the id that holds when the request names none.
        max_bytes: limit of input and metadata, each.

    Raises:
        InvalidRequest, TooLarge: the message names the field and the value.
    """
    config = request.config or RolloutConfig()
    body = bodies.RolloutBody(request.input, request.config, request.metadata or {})
    resources = request.resources_id if request.resources_id is not None else latest_resources
    return NewRollout(
        rollout_id=check_rollout_id(request.rollout_id) if request.rollout_id is not None else new_rollout_id(),
        body=bodies.encode_rollout(body, max_bytes),
        mode=request.mode or "",
        resources="" if resources is None else check_resources_id(resources),
        **config_fields(config),
    )


def config_fields(config: RolloutConfig) -> dict[str, Any]:
    """The rules of a rollout as functions take them.

    Raises:
        InvalidRequest: a limit that is no time.
    """
    return {
        "timeout_us": limit_us(config.timeout_seconds, "config.timeout_seconds"),
        "unresponsive_us": limit_us(config.unresponsive_seconds, "config.unresponsive_seconds"),
        "max_attempts": config.max_attempts,
        "retry": ",".join(config.retry_condition),
    }


def limit_us(seconds: float | None, what: str) -> str:
    """A limit in microseconds; '' for none.

    Raises:
        InvalidRequest: no number, negative, NaN or absurdly large.
    """
    if seconds is None:
        return ""
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_LIMIT_S:  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise InvalidRequest(f"{what} must be between 0 and {MAX_LIMIT_S:.0f} seconds, got {shown(seconds)}")
    return str(round(seconds * US_PER_S))


def time_us(seconds: object, what: str) -> str:
    """A Unix time in microseconds.

    Raises:
        InvalidRequest: not a finite, non-negative number.
    """
    if not isinstance(seconds, int | float) or not math.isfinite(seconds) or not 0 <= seconds <= MAX_LIMIT_S * 10:
        raise InvalidRequest(f"{what} must be a Unix time in seconds, got {shown(seconds)}")
    return str(round(seconds * US_PER_S))


def known_form(some_id: str) -> str:
    """A rollout or attempt id as it may stand in a key. Another form cannot exist, so it is reported as missing.

    Raises:
        NotFound: it has another form.
    """
    if not is_known_form(some_id):
        raise NotFound(f"there is no rollout or attempt {shown(some_id)}: ids are 1 to 128 of A-Z a-z 0-9 . _ ~ -")
    return some_id


def is_known_form(some_id: object) -> bool:
    """Whether something may be a rollout or attempt id at all."""
    return isinstance(some_id, str) and GIVEN_ID.fullmatch(some_id) is not None


def one_of(value: object, allowed: tuple[str, ...], what: str) -> str:
    """A word of a closed set.

    Raises:
        InvalidRequest: another value.
    """
    if value not in allowed:
        raise InvalidRequest(f"{what} must be one of {', '.join(allowed)}; got {shown(value)}")
    return cast("str", value)


def reason_text(reason: str | None) -> str:
    """A reason, cut to its limit; '' for none.

    Raises:
        InvalidRequest: no text.
    """
    if reason is not None and not isinstance(reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise InvalidRequest(f"a reason must be text, got {shown(reason)}")
    return (reason or "")[:REASON_LIMIT]


def of_kind(value: T, kind: type[T], what: str) -> T:
    """A value that is of a kind.

    Raises:
        InvalidRequest: it is not.
    """
    if not isinstance(value, kind):
        raise InvalidRequest(f"{what} must be of type {kind.__name__}, got {shown(value)} of type {type_name(value)}")
    return value


def metadata_dict(value: object, what: str = "metadata") -> dict[str, Any]:
    """Metadata, which is an object with string keys.

    Raises:
        InvalidRequest: anything else.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{what} must be a mapping, got {shown(value)} of type {type(value).__name__}")
    return dict(cast("Mapping[str, Any]", value))
