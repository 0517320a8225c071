"""P5: what a span costs in the server's memory, with everything that is kept for it."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Final

from agl_streams import semconv
from agl_streams.bench.report import Row
from agl_streams.bench.scratch import scratch_store, used_memory
from agl_streams.bench.work import SPANS_PER_CYCLE, opened, span_of
from agl_streams.config import Settings
from agl_streams.models import AttemptedRollout, Span

ATTEMPTS: Final = 1000
PROMPT_TOKENS: Final = 100
ANSWER_TOKENS: Final = 200
VOCABULARY: Final = 151_936  # of a model of today
KB: Final = 1000.0


async def memory(settings: Settings, *, attempts: int = ATTEMPTS) -> list[Row]:
    """Two rows. Each attempt has ten spans, stored in one call, and its sums are folded.

    The rollouts are there before: what they cost is not a span's.
    """
    rows: list[Row] = []
    for what, make, target in (
        ("1 KB span", span_of, 2.0),
        (f"model call of {PROMPT_TOKENS} + {ANSWER_TOKENS} tokens", model_call, 6.0),
    ):
        cost, size = await _bytes_per_span(settings, make, attempts)
        detail = f"{attempts * SPANS_PER_CYCLE:,} spans of {size:,.0f} bytes as JSON"
        rows.append(Row("P5", f"memory in the server per {what}, all indexes counted, KB", cost, target, "low", detail))
    return rows


async def _bytes_per_span(
    settings: Settings, make: Callable[[AttemptedRollout], Span], attempts: int
) -> tuple[float, float]:
    """KB of memory and bytes of JSON of one span."""
    async with scratch_store(settings, durable=False) as store:
        attempted = [await opened(store) for _ in range(attempts)]
        await store.settle()
        before, size = await used_memory(store), 0
        for one in attempted:
            spans = [make(one) for _ in range(SPANS_PER_CYCLE)]
            size += sum(len(span.to_json()) for span in spans)
            await store.add_many_spans(spans, assign_sequence=True)
        await store.settle()
        count = attempts * SPANS_PER_CYCLE
        return (await used_memory(store) - before) / count / KB, size / count


def model_call(attempted: AttemptedRollout) -> Span:
    """A span as the proxy makes it of an answer of 25 KB: ids and log-probabilities of a sampled text.

    Ids are drawn as words are, a few of them often; log-probabilities have the digits that a 32-bit number has when it
    is written as a 64-bit one. Both compress as real ones do, not better.
    """
    answer = [_token() for _ in range(ANSWER_TOKENS)]
    text = "".join(f" {token:x}" for token in answer)
    prompt = [_token() for _ in range(PROMPT_TOKENS)]
    messages = [{"role": "user", "content": "".join(f" {token:x}" for token in prompt)}]
    return Span.from_attributes(
        name=f"{semconv.KIND_CHAT} model",
        attributes={
            semconv.GEN_AI_OPERATION_NAME: semconv.KIND_CHAT,
            semconv.GEN_AI_REQUEST_MODEL: "model",
            semconv.GEN_AI_REQUEST_TEMPERATURE: 1.0,
            semconv.GEN_AI_REQUEST_MAX_TOKENS: ANSWER_TOKENS,
            semconv.GEN_AI_INPUT_MESSAGES: json.dumps(messages),
            semconv.GEN_AI_OUTPUT_MESSAGES: json.dumps([{"role": "assistant", "content": text}]),
            semconv.GEN_AI_RESPONSE_ID: f"chatcmpl-{random.getrandbits(128):032x}",
            semconv.GEN_AI_RESPONSE_MODEL: "model",
            semconv.GEN_AI_RESPONSE_FINISH_REASONS: ["stop"],
            semconv.GEN_AI_USAGE_INPUT_TOKENS: PROMPT_TOKENS,
            semconv.GEN_AI_USAGE_OUTPUT_TOKENS: ANSWER_TOKENS,
            semconv.SERVER_ADDRESS: "localhost",
            semconv.SERVER_PORT: 8000,
            semconv.CALL_KIND: semconv.KIND_CHAT,
            semconv.CALL_COMPLETE: True,
            semconv.CALL_STREAMED: False,
            semconv.CALL_STATUS_CODE: 200,
            semconv.CALL_DURATION_S: random.random(),
            semconv.CALL_UPSTREAM: "http://localhost:8000",
            semconv.CALL_PROMPT_TOKEN_IDS: prompt,
            semconv.choice_key(0, semconv.CHOICE_TOKEN_IDS): answer,
            semconv.choice_key(0, semconv.CHOICE_LOGPROBS): [_logprob() for _ in answer],
            semconv.choice_key(0, semconv.CHOICE_FINISH_REASON): "stop",
        },
        rollout_id=attempted.rollout_id,
        attempt_id=attempted.attempt.attempt_id,
        start_time=1.0,
        end_time=2.0,
    )


def _token() -> int:
    return int(VOCABULARY ** random.random())


def _logprob() -> float:
    """Most tokens are likely, some are not."""
    (value,) = struct.unpack("f", struct.pack("f", -random.expovariate(1.0)))
    return value
