"""The answers of the policy server on the wire: vLLM's chat completions, whole and as streams, key for key.

The forms are those of vLLM 0.32 as recorded in ``tests/data/vllm``. Whole answers carry every key, null when unused;
chunks of a stream carry fewer, and their token ids and log-probabilities belong to that chunk alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson

from agl_streams.demo.chat_request import MAX_MODEL_LEN, MODEL, ChatRequest
from agl_streams.demo.policy import Policy, Token
from agl_streams.demo.sampling import Sampling, Step, sample_choice
from agl_streams.demo.tokenizer import Tokenizer

DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Call:
    """One chat call that is answered by one version of the policy, whatever is pushed meanwhile.

    Attributes:
        id: of the answer.
        created: Unix seconds.
        sampling: how each choice is sampled.
    """

    id: str
    created: int
    request: ChatRequest
    policy: Policy
    prompt_ids: list[int]
    sampling: Sampling

    def choices(self) -> list[Iterator[Step]]:
        """The choices, still to be sampled."""
        return [sample_choice(self.policy, self.prompt_ids, self.sampling, n) for n in range(self.request.n)]


def whole_answer(call: Call) -> bytes:
    """The answer in one piece."""
    choices = [list(steps) for steps in call.choices()]
    sampled = sum(len(steps) for steps in choices)
    answer = {
        **_head(call, "chat.completion"),
        "choices": [_whole_choice(call, index, steps) for index, steps in enumerate(choices)],
        "service_tier": None,
        "system_fingerprint": call.policy.fingerprint,
        "usage": {
            **_usage(call, sampled),
            "prompt_tokens_details": {**_PROMPT_DETAILS, "multimodal_tokens": None},
            "completion_tokens_details": None,
        },
        "prompt_logprobs": None,
        **_prompt(call),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }
    return orjson.dumps(answer)


def stream_frames(call: Call) -> Iterator[bytes]:
    """The events of the streamed answer, each as it can be sent; the last one is the terminator.

    The fingerprint is in the last event before it: the usage, or else the last token.
    """
    usage = call.request.include_usage
    sampled = 0
    for index in range(call.request.n):
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        yield _frame({**_chunk(call, [choice]), **_prompt(call)})
    for index, step, last in _in_turns(call.choices()):
        sampled += 1
        chunk = _chunk(call, [_streamed_choice(call, index, step)])
        yield _frame(chunk if usage or not last else {**chunk, **_fingerprint(call)})
    if usage:
        counted = {**_usage(call, sampled), "prompt_tokens_details": _PROMPT_DETAILS}
        yield _frame({**_chunk(call, []), "usage": counted, **_fingerprint(call)})
    yield DONE


def models(created: int) -> bytes:
    """The list of models, which is one."""
    permission = {
        "id": "modelperm-0",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": MODEL,
        "object": "model",
        "created": created,
        "owned_by": "agl-streams",
        "root": MODEL,
        "parent": None,
        "max_model_len": MAX_MODEL_LEN,
        "permission": [permission],
    }
    return orjson.dumps({"object": "list", "data": [model]})


# Nothing is cached here, and the keys are there all the same.
_PROMPT_DETAILS: Final = {"cached_tokens": 0, "created_cache_tokens": 0}


def _in_turns(choices: Sequence[Iterator[Step]]) -> Iterator[tuple[int, Step, bool]]:
    """Index and next step of each choice in turn, and whether it is the last step of all."""
    open_choices = dict(enumerate(choices))
    while open_choices:
        for index, steps in list(open_choices.items()):
            step = next(steps)
            if step.finish_reason is not None:
                del open_choices[index]
            yield index, step, not open_choices


def _whole_choice(call: Call, index: int, steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "index": index,
        "message": {
            "role": "assistant",
            "content": "".join(step.text for step in steps),
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": _logprobs(call, steps),
        "finish_reason": steps[-1].finish_reason,
        "stop_reason": steps[-1].stop_reason,
        "token_ids": _token_ids(call, steps),
        "routed_experts": None,
    }


def _streamed_choice(call: Call, index: int, step: Step) -> dict[str, Any]:
    last = {} if step.finish_reason is None else {"stop_reason": step.stop_reason}
    return {
        "index": index,
        "delta": {"content": step.text} if step.text else {},
        "logprobs": _logprobs(call, [step]),
        "finish_reason": step.finish_reason,
        **last,
        "token_ids": _token_ids(call, [step]),
    }


def _token_ids(call: Call, steps: Sequence[Step]) -> list[int] | None:
    return [step.token.id for step in steps] if call.request.return_token_ids else None


def _logprobs(call: Call, steps: Sequence[Step]) -> dict[str, Any] | None:
    if not call.request.logprobs:
        return None
    tokenizer, top = call.policy.tokenizer, call.request.top_logprobs or 0
    return {
        "content": [
            {
                **_scored(tokenizer, step.token.id, step.token.logprob),
                "top_logprobs": [
                    _scored(tokenizer, token_id, float(step.token.logprobs[token_id]))
                    for token_id in _top_ids(step.token, top)
                ],
            }
            for step in steps
        ]
    }


def _top_ids(token: Token, count: int) -> list[int]:
    """The sampled token and the likeliest ones, together ``count``, each once."""
    if not count:
        return []
    likeliest = np.argsort(-token.logprobs, kind="stable")[:count].tolist()
    return list(dict.fromkeys([token.id, *likeliest]))[:count]


def _scored(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    """A token with its log-probability. A part of a character has no text, and then no bytes either, as vLLM has it."""
    try:
        text = tokenizer.token_bytes(token_id).decode()
    except UnicodeDecodeError:
        text = ""
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _head(call: Call, kind: str) -> dict[str, Any]:
    return {"id": call.id, "object": kind, "created": call.created, "model": MODEL}


def _chunk(call: Call, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_head(call, "chat.completion.chunk"), "choices": choices}


def _prompt(call: Call) -> dict[str, Any]:
    return {
        "prompt_token_ids": call.prompt_ids if call.request.return_token_ids else None,
        "prompt_text": call.policy.tokenizer.show(call.prompt_ids) if call.request.return_prompt_text else None,
    }


def _fingerprint(call: Call) -> dict[str, str]:
    return {"system_fingerprint": call.policy.fingerprint}


def _usage(call: Call, sampled: int) -> dict[str, Any]:
    prompt = len(call.prompt_ids)
    return {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"
