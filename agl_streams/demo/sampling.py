"""One choice of an answer, sampled token by token: its text as it comes out, and why it ends."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from agl_streams.demo.policy import Policy, Token

SEEDS: Final = 2**64
"""A seed may be any integer of 64 bits, with or without a sign; the generator takes those without."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample.

    Attributes:
        seed: the first choice is sampled from it, the next from the number above it and so on; None: from chance.
        max_tokens: the most tokens of a choice, at least 1.
        stops: texts that end a choice and are cut off; none is empty.
    """

    temperature: float
    seed: int | None
    max_tokens: int
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One sampled token of a choice.

    Attributes:
        text: what the client reads of it; empty for a part of a character, and while it may begin a stop text.
        finish_reason: set in the last step.
        stop_reason: the stop text that ended the choice.
    """

    token: Token
    text: str
    finish_reason: Literal["stop", "length"] | None = None
    stop_reason: str | None = None


def sample_choice(policy: Policy, prompt_ids: Sequence[int], sampling: Sampling, index: int) -> Iterator[Step]:
    """Sample choice ``index`` (from 0), one step for each token, the end token included."""
    seed = None if sampling.seed is None else (sampling.seed + index) % SEEDS
    tokens = policy.sample(prompt_ids, np.random.default_rng(seed), sampling.temperature)
    text = _Text(sampling.stops)
    for count, token in enumerate(tokens, start=1):
        ends = token.id == policy.tokenizer.end_id
        last = ends or count == sampling.max_tokens
        shown = b"" if policy.tokenizer.is_control(token.id) else policy.tokenizer.token_bytes(token.id)
        delta, stop = text.add(shown, last=last)
        if stop is not None:
            yield Step(token, delta, "stop", stop)
            return
        if last:
            yield Step(token, delta, "stop" if ends else "length")
            return
        yield Step(token, delta)


class _Text:
    """The text of a choice, held back as long as it may be half a character or the beginning of a stop text."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = stops
        self._keep = max((len(stop) for stop in stops), default=1) - 1
        self._held = ""

    def add(self, data: bytes, *, last: bool) -> tuple[str, str | None]:
        """The text that can be shown now, and the stop text that was met."""
        text = self._held + self._decoder.decode(data, final=last)
        found = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            place, stop = min(found)
            return text[:place], stop
        shown = len(text) if last else max(len(text) - self._keep, 0)
        self._held = text[shown:]
        return text[:shown], None
