"""What is added to a chat request before it goes to the inference server, and what its client asked for itself.

Without these fields vLLM gives neither token ids nor log-probabilities nor, on streams, usage. Values that the client
gave are kept, even where they make the capture incomplete: the span then says why. Only ``include_usage`` is always
on, since the event that it adds is taken out again for a client that did not ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import orjson

from agl_streams.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request, as it came and as it goes upstream.

    Attributes:
        body: the client's object, untouched.
        upstream: the bytes for the inference server.
        choices: how many choices were asked for.
        asked_usage, asked_token_ids, asked_logprobs: what the client itself asked to see.
    """

    body: dict[str, Any]
    upstream: bytes
    choices: int
    asked_usage: bool
    asked_token_ids: bool
    asked_logprobs: bool

    @property
    def model(self) -> str:
        """The model's name; empty when the request gives none, which the server may allow."""
        model = self.body.get("model")
        return model if isinstance(model, str) else ""


def shape(data: bytes) -> ChatRequest:
    """Parse a chat request and add what the capture needs.

    Raises:
        InvalidRequest: not a JSON object.
    """
    body = _parse(data)
    shaped = dict(body)
    for field in ("return_token_ids", "logprobs"):
        if shaped.get(field) is None:
            shaped[field] = True
    asked_usage = False
    if body.get("stream"):
        given: object = body.get("stream_options") or {}
        if isinstance(given, dict):  # anything else is the server's to refuse
            options = cast("dict[str, Any]", given)
            asked_usage = bool(options.get("include_usage"))
            shaped["stream_options"] = {**options, "include_usage": True}
    choices = body.get("n")
    return ChatRequest(
        body=body,
        upstream=orjson.dumps(shaped),
        choices=choices if isinstance(choices, int) and choices > 0 else 1,
        asked_usage=asked_usage,
        asked_token_ids=bool(body.get("return_token_ids")),
        asked_logprobs=bool(body.get("logprobs")),
    )


def _parse(data: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidRequest(f"the request body must be a JSON object, not {type(body).__name__}")
    return cast("dict[str, Any]", body)
