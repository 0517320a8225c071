"""What a client may ask of the policy server: vLLM's chat completion request, and its refusals word for word.

The forms of the refusals are those of vLLM 0.32 (recorded in ``tests/data/vllm/errors``). What vLLM would sample with
and this server cannot, such as tools or a logit bias, is refused and never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal

import orjson
import pydantic

from agl_streams.errors import InvalidRequest

JSON: Final = "application/json"
MODEL: Final = "agl-policy"
"""The one model of the server."""
MAX_MODEL_LEN: Final = 1024  # tokens of prompt and answer; the longest prompt of the demo has some 200
MAX_TOP_LOGPROBS: Final = 20  # vLLM's own limit, --max-logprobs
MAX_CHOICES: Final = 128  # enough for any group of samples, and a bound on the work of one call

NEUTRAL: Final[Mapping[str, Sequence[object]]] = {
    "tools": (None, []),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    "top_p": (None, 1),
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "min_tokens": (None, 0),
    "ignore_eos": (None, False),
    "stop_token_ids": (None, []),
    "include_stop_str_in_output": (None, False),
    "skip_special_tokens": (None, True),
    "use_beam_search": (None, False),
    "prompt_logprobs": (None,),
    "return_tokens_as_token_ids": (None, False),
    "echo": (None, False),
    "continue_final_message": (None, False),
}
"""Parameters of vLLM that this server has not, each with the values that ask for nothing."""


class Refused(InvalidRequest):
    """A request that gets an error answer.

    Attributes:
        status: of the answer.
        body: of the answer, JSON.
    """

    def __init__(self, status: HTTPStatus, message: str, kind: str, param: str | None) -> None:
        super().__init__(message)
        self.status = status
        error = {"message": message, "type": kind, "param": param, "code": status.value}
        self.body = orjson.dumps({"error": error})


class TextPart(pydantic.BaseModel):
    """A piece of a message's content; this model reads text alone."""

    type: Literal["text"]
    text: str


class ChatMessage(pydantic.BaseModel):
    """One message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if self.content is None:
            return ""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(pydantic.BaseModel):
    """Options of a streamed answer."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class ChatRequest(pydantic.BaseModel):
    """The body of a chat completion request; unknown keys are ignored, as vLLM does."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow", from_attributes=True)

    messages: list[ChatMessage]
    model: str | None = None
    n: int = 1
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_prompt_text: bool | None = None
    request_id: str | None = None

    @property
    def token_limit(self) -> int | None:
        """How many tokens the answer may have, if the client says so."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


def read_request(body: bytes, content_type: str) -> ChatRequest:
    """The request in the body.

    Raises:
        Refused: 400, or 404 for another model.
    """
    if content_type != JSON:
        raise _invalid([f"Unsupported Media Type: Only {JSON!r} is allowed"], None)
    try:
        request = ChatRequest.model_validate(_read_json(body))
    except pydantic.ValidationError as error:
        faults = [_fault(dict(detail)) for detail in error.errors(include_url=False)]
        raise _invalid([str(fault) for fault in faults], faults[0]["loc"]) from error
    for check in (_check_model, _check_numbers, _check_logprobs, _check_rest):
        check(request)
    return request


def check_length(request: ChatRequest, prompt_tokens: int) -> int:
    """The most tokens that an answer to a prompt of that length may have.

    Raises:
        Refused: prompt and answer do not fit into the model's context.
    """
    room = MAX_MODEL_LEN - prompt_tokens
    if room < 1:
        least = min(prompt_tokens, MAX_MODEL_LEN + 1)
        raise bad_request(
            f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, your prompt contains at least "
            f"{least} input tokens, which exceeds this limit even without any output tokens. Please reduce the length "
            "of the input prompt.",
            "input_tokens",
            least,
        )
    limit = request.token_limit
    if limit is None:
        return room
    if limit > room:
        raise bad_request(
            f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, you requested {limit} output "
            f"tokens and your prompt contains {prompt_tokens} input tokens. Please reduce one of them.",
            "max_tokens",
            limit,
        )
    return limit


def bad_request(message: str, param: str | None, value: object = None) -> Refused:
    """vLLM's refusal of a value that it can read and not use."""
    named = (
        "" if param is None else f" (parameter={param})" if value is None else f" (parameter={param}, value={value})"
    )
    return Refused(HTTPStatus.BAD_REQUEST, message + named, "BadRequestError", param)


def _check_model(request: ChatRequest) -> None:
    if request.model not in (None, MODEL):
        message = f"The model `{request.model}` does not exist. Valid aliases: {MODEL}."
        raise Refused(HTTPStatus.NOT_FOUND, message, "NotFoundError", "model")


def _check_numbers(request: ChatRequest) -> None:
    temperature, limit = request.temperature, request.token_limit
    if temperature is not None and not 0.0 <= temperature < float("inf"):
        raise bad_request(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
    if not 1 <= request.n <= MAX_CHOICES:
        raise bad_request(f"n must be at least 1 and at most {MAX_CHOICES}, got {request.n}.", "n", request.n)
    if limit is not None and limit < 1:
        raise bad_request(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
    if limit is not None and limit > MAX_MODEL_LEN:
        message = (
            f"max_tokens={limit} cannot be greater than max_model_len={MAX_MODEL_LEN}. "
            "Please request fewer output tokens."
        )
        raise bad_request(message, "max_tokens", limit)


def _check_logprobs(request: ChatRequest) -> None:
    top = request.top_logprobs
    if top is None:
        return
    if top < 0:
        raise bad_request("`top_logprobs` must be a positive value.", "top_logprobs", top)
    if top > 0 and not request.logprobs:
        raise bad_request("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    if top > MAX_TOP_LOGPROBS:
        message = f"Requested sample logprobs of {top}, which is greater than max allowed: {MAX_TOP_LOGPROBS}"
        raise bad_request(message, "logprobs", top)


def _check_rest(request: ChatRequest) -> None:
    options = request.stream_options
    if options is not None and not request.stream:
        raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
    if options is not None and options.continuous_usage_stats:
        raise bad_request("continuous_usage_stats is not supported by this server.", "stream_options")
    if not request.messages:
        raise bad_request("Cannot apply chat template to an empty conversation. Provide at least one message.", None)
    if "" in request.stops:
        raise bad_request("stop cannot contain an empty string.", "stop")
    extra: dict[str, object] = request.model_extra or {}
    for name, neutral in NEUTRAL.items():
        if extra.get(name) not in neutral:
            raise bad_request(f"{name} is not supported by this server.", name)


def _read_json(body: bytes) -> object:
    """The JSON of the body, read as the web framework of vLLM does, since its words are in the refusals."""
    if not body:
        fault = _fault({"type": "missing", "loc": (), "msg": "Field required", "input": None})
        raise _invalid([str(fault)], fault["loc"])
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        detail = {"loc": (error.pos,), "msg": "JSON decode error", "input": {}, "ctx": {"error": error.msg}}
        fault = _fault({"type": "json_invalid", **detail})
        raise _invalid([str(fault)], fault["loc"]) from error
    except UnicodeDecodeError as error:
        raise bad_request("There was an error parsing the body", None) from error


def _fault(detail: dict[str, Any]) -> dict[str, Any]:
    """One fault in the words of a refusal: the place as a path, the input as a short text."""
    value = detail["input"]
    kind = type(value).__name__
    shown = f"<{kind} of {len(value)} items>" if isinstance(value, (dict, list)) else str(value)  # pyright: ignore[reportUnknownArgumentType]  the client's JSON, of any type
    return {**detail, "loc": ".".join(["body", *(str(part) for part in detail["loc"])]), "input": shown}


def _invalid(faults: list[str], param: str | None) -> Refused:
    lines = "\n".join(f"  {fault}" for fault in faults)
    message = f"{len(faults)} validation error{'s' if len(faults) > 1 else ''}:\n{lines}"
    return Refused(HTTPStatus.BAD_REQUEST, message, "Bad Request", param)
