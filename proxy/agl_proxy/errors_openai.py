"""The errors that the proxy itself gives a client: OpenAI's shape, as JSON or as an event in a stream.

Error answers of the inference server are not touched; they pass through as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import orjson

from agl_proxy.asgi import Headers, Send
from agl_streams import errors

RETRY_AFTER_S = 2
"""For 503: a store that restarts is back within a second or two."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """One error as a client sees it.

    Attributes:
        status: the HTTP status, when the head of the answer is not out yet.
        kind: the ``type`` field, in the manner of vLLM's names.
        retry: whether the same call may succeed later. OpenAI's SDKs retry 409 by themselves unless told otherwise.
    """

    status: HTTPStatus
    kind: str
    message: str
    retry: bool = True

    def body(self) -> bytes:
        """OpenAI's error object."""
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.status.value}
        return orjson.dumps({"error": error})

    def event(self) -> bytes:
        """The same as a server-sent event, for a stream whose head is out."""
        return b"data: " + self.body() + b"\n\n"

    def headers(self) -> Headers:
        """The headers beside the body's type and length."""
        headers: Headers = []
        if self.status is HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
        if not self.retry:
            headers.append((b"x-should-retry", b"false"))
        return headers


def answer_to(error: errors.AglError) -> ErrorAnswer:
    """The answer to an error of the project. What is not the caller's fault is the store's: 503."""
    message = str(error)
    match error:
        case errors.TooLarge():
            return ErrorAnswer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestTooLarge", message, retry=False)
        case errors.NotFound():
            return ErrorAnswer(HTTPStatus.NOT_FOUND, "NotFoundError", message, retry=False)
        case errors.Conflict():
            return ErrorAnswer(HTTPStatus.CONFLICT, "ConflictError", message, retry=False)
        case errors.InvalidRequest():
            return ErrorAnswer(HTTPStatus.BAD_REQUEST, "BadRequestError", message, retry=False)
        case _:
            return ErrorAnswer(HTTPStatus.SERVICE_UNAVAILABLE, "StoreUnavailable", message)


async def send_error(send: Send, answer: ErrorAnswer) -> None:
    """Answer a request with an error. Nothing of the answer may be out yet."""
    body = answer.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *answer.headers()]
    await send({"type": "http.response.start", "status": answer.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
