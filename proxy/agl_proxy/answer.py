"""What is read off the answer to one model call: the same for an answer in one piece and for a stream.

The field positions are those of vLLM 0.32: prompt ids at the top level (of a stream: in the first chunk of each
choice), response ids and log-probabilities in each choice. A chunk with an empty delta may still carry both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from agl_proxy import checks


@dataclass(slots=True)
class Choice:
    """One sampled continuation.

    Attributes:
        token_ids: None until the answer has the field, which tells "none" from "not given".
        logprobs: natural logarithms, one per token id; None as above.
        message: the message, without null fields. Of a stream: what is not a growing text; see `text`.
        text: fragments of a stream's growing texts, by field (``content``, ``reasoning``, ``refusal``, ...).
        tool_calls: a stream's tool calls, by their index.
    """

    index: int
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    message: dict[str, Any] = field(default_factory=dict[str, Any])
    text: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    tool_calls: dict[int, ToolCall] = field(default_factory=dict[int, "ToolCall"])

    def take_tokens(self, source: dict[str, Any]) -> None:
        """Add the ids and log-probabilities of a choice, or of one chunk of it."""
        ids = source.get("token_ids")
        if ids is not None:
            self.token_ids = self.token_ids or []
            self.token_ids.extend(ids)
        logprobs = source.get("logprobs")
        if logprobs is not None and (content := logprobs.get("content")) is not None:
            self.logprobs = self.logprobs or []
            self.logprobs.extend([entry["logprob"] for entry in content])
        finish_reason = source.get("finish_reason")
        if finish_reason is not None:
            self.finish_reason = finish_reason
            self.stop_reason = source.get("stop_reason")

    def take_delta(self, delta: dict[str, Any]) -> None:
        """Add one chunk's part of the message."""
        for name, value in delta.items():
            if name == "tool_calls":
                for position, fragment in enumerate(value or ()):
                    self._take_tool_call(fragment, position)
            elif name != "role" and isinstance(value, str):
                self.text.setdefault(name, []).append(value)
            elif value is not None:
                self.message[name] = value

    def whole_message(self) -> dict[str, Any]:
        """The message, the same whether it was streamed or not; empty texts are left out beside tool calls."""
        message = dict(self.message)
        for name, fragments in self.text.items():
            if text := "".join(fragments):
                message[name] = text
        if self.tool_calls:
            message["tool_calls"] = [call.whole() for _, call in sorted(self.tool_calls.items())]
        if not message.get("content") and not message.get("tool_calls"):
            message["content"] = ""
        return message

    def _take_tool_call(self, fragment: dict[str, Any], position: int) -> None:
        index = fragment.get("index")
        call = self.tool_calls.setdefault(position if index is None else index, ToolCall())
        call.id = call.id or fragment.get("id")
        call.kind = fragment.get("type") or call.kind
        function: dict[str, Any] | None = fragment.get("function")
        if function is not None:
            call.name.append(function.get("name") or "")
            call.arguments.append(function.get("arguments") or "")


@dataclass(slots=True)
class ToolCall:
    """A tool call that arrives in fragments of name and arguments."""

    id: str | None = None
    kind: str = "function"
    name: list[str] = field(default_factory=list[str])
    arguments: list[str] = field(default_factory=list[str])

    def whole(self) -> dict[str, Any]:
        """The call as an answer in one piece has it."""
        function = {"name": "".join(self.name), "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": self.kind, "function": function}


@dataclass(slots=True)
class Answer:
    """What is known of an answer so far.

    Attributes:
        status_code: of the inference server; None when it gave none.
        prompt_tokens, completion_tokens: the server's own count, over all choices.
        terminated: the answer came to its own end: a whole body, or a stream's ``[DONE]``.
        fault: the first thing that went wrong, a reason of `checks`; ``fault_detail`` says it in words.
    """

    streamed: bool = False
    status_code: int | None = None
    response_id: str | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    choices: dict[int, Choice] = field(default_factory=dict[int, Choice])
    terminated: bool = False
    fault: str | None = None
    fault_detail: str = ""

    def note_fault(self, reason: str, detail: str) -> None:
        """Remember what went wrong first; what follows from it is not the reason."""
        if self.fault is None:
            self.fault, self.fault_detail = reason, detail

    def finished(self, choices: int) -> bool:
        """Whether each of so many choices has its finish reason: nothing but usage and terminator can follow."""
        given = self.choices
        return len(given) >= choices and all(choice.finish_reason is not None for choice in given.values())

    def has_tokens(self) -> bool:
        """Whether anything that was sampled has arrived: ids, or text of a server that gives none."""
        return any(
            choice.token_ids or choice.tool_calls or any(map(any, choice.text.values()))
            for choice in self.choices.values()
        )

    def take(self, data: dict[str, Any], message_key: str) -> None:
        """Read a whole answer (``message``) or one chunk of a stream (``delta``).

        Raises:
            AttributeError, KeyError, TypeError: the shape is none that an inference server should give.
        """
        if data.get("error") is not None or data.get("object") == "error":
            self.note_fault(checks.UPSTREAM_ERROR, _error_text(data))
            return
        if self.response_id is None:
            self.response_id, self.model = data.get("id"), data.get("model")
        if (fingerprint := data.get("system_fingerprint")) is not None:
            self.system_fingerprint = fingerprint
        if (usage := data.get("usage")) is not None:
            self.prompt_tokens, self.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        if (prompt := data.get("prompt_token_ids")) is not None:
            self._take_prompt(prompt)
        for position, source in enumerate(data["choices"]):
            self._take_choice(source, position, message_key)

    def _take_prompt(self, prompt: list[int]) -> None:
        if self.prompt_token_ids is None:
            self.prompt_token_ids = prompt
        elif self.prompt_token_ids != prompt:  # a stream repeats them for each choice
            self.note_fault(checks.PROMPT_CONFLICT, "two choices of one call report different prompt token ids")

    def _take_choice(self, source: dict[str, Any], position: int, message_key: str) -> None:
        index = source.get("index", position)
        if type(index) is not int:
            raise TypeError(f"the index of a choice is {index!r}")
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice(index)
        choice.take_tokens(source)
        part = source.get(message_key)
        if part is None:
            return
        if message_key == "delta":
            choice.take_delta(part)
        else:
            choice.message = {name: value for name, value in part.items() if value is not None}


def _error_text(data: dict[str, Any]) -> str:
    error = data.get("error", data)
    message = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
    return str(message)
