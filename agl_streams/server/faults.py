"""From errors to answers: the caller's mistakes are told, ours are logged under an id and told by it alone."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agl_streams import errors
from agl_streams.logger import get_logger
from agl_streams.server.answers import plain
from agl_streams.server.asgi import Answer, Headers, Request
from agl_streams.server.bodies import Crowded, TooLong
from agl_streams.server.call import Draining
from agl_streams.server.validation import Unprocessable, Unreadable

RETRY_AFTER_S: Final = b"1"
"""A restarted server or engine is back within a second."""
KIND_HEADER: Final = b"x-error"
"""Names the class of a domain error, for our own client: the status alone does not tell `AttemptEnded` from others."""

_STATUS: Final[Mapping[type[errors.AglError], int]] = {
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.InvalidRequest: 400,
}

_log = get_logger()


@dataclass(slots=True)
class Fault:
    """What a caller is told of an error.

    Attributes:
        detail: a text, or the findings of a validation.
        error_id: under which the server's log tells more.
    """

    status: int
    detail: Any
    headers: Headers = field(default_factory=Headers)
    error_id: str | None = None

    def answer(self) -> Answer:
        """The fault as JSON."""
        body = {"detail": self.detail}
        if self.error_id is not None:
            body["error_id"] = self.error_id
        return Answer(plain(body), self.status, headers=self.headers)


def fault_of(error: Exception, request: Request, limit_bytes: int) -> Fault:
    """What is told of an error of a handler, or of what comes before it. No traceback leaves the server.

    Args:
        limit_bytes: of a request's body.
    """
    match error:
        case Unprocessable():
            return Fault(422, error.findings)
        case Unreadable():
            return Fault(400, str(error))
        case TooLong():
            return Fault(413, f"the request is above its limit of {limit_bytes:,} bytes (AGL_MAX_REQUEST_BYTES)")
        case Crowded():
            return _unavailable(str(error))
        case Draining():
            return _unavailable("the server is stopping; try again")
        case errors.StoreUnavailable():
            error_id = _logged(error, request)
            text = f"the store cannot serve this call now; try again (error {error_id})"
            return _unavailable(text, type(error).__name__)
        case errors.AglError():
            return _domain_fault(error) or _unexpected(error, request)
        case _:
            return _unexpected(error, request)


def _domain_fault(error: errors.AglError) -> Fault | None:
    """The fault of a caller; None when it is ours, as a setting that is wrong."""
    if isinstance(error, errors.ConfigError):
        return None
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return Fault(status, str(error), [(KIND_HEADER, type(error).__name__.encode())])
    return None


def _unavailable(detail: str, kind: str = errors.StoreUnavailable.__name__) -> Fault:
    return Fault(503, detail, [(b"retry-after", RETRY_AFTER_S), (KIND_HEADER, kind.encode())])


def _unexpected(error: Exception, request: Request) -> Fault:
    error_id = _logged(error, request)
    return Fault(500, f"Internal server error; the server's log tells more under error {error_id}", error_id=error_id)


def _logged(error: Exception, request: Request) -> str:
    error_id = secrets.token_hex(6)
    _log.error("request_failed", error_id=error_id, method=request.method, path=request.path, exc_info=error)
    return error_id
