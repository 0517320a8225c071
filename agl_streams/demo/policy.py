"""The policy: a softmax over the vocabulary, linear in the words of the prompt's last line.

It is a language model of the smallest honest kind: a frozen habit of form (say one tool's name, then end), and trained
weights that know which tool. Its logits depend on the ids before the sampled one and on nothing else, so the gradient
of a log-probability can be computed from prompt and response ids alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.demo.tools import TOOLS

Floats = NDArray[np.float64]

# The untrained model already answers in form, as one does that was taught the format but not the task. With this logit
# and some 700 tokens, an answer in half a million is anything else than a tool's name and the end; tools are equal.
FORM_LOGIT = 20.0
# Breaks the tie between the tools, too little to prefer one.
INITIAL_NOISE = 0.01
FIRST_VERSION = 1
FINGERPRINT_PREFIX = "agl-policy-"


class Token(NamedTuple):
    """A sampled token.

    Attributes:
        id: of the token.
        logprobs: log-probabilities of the whole vocabulary where it was sampled, at temperature 1, in nats.
    """

    id: int
    logprobs: Floats

    @property
    def logprob(self) -> float:
        """The token's own log-probability, in nats."""
        return float(self.logprobs[self.id])


class Policy:
    """One version of the policy. Never changes: an update makes another one.

    Attributes:
        tokenizer: its vocabulary.
        weights: shape (word pieces, vocabulary), see ``weights_shape``; read-only.
        version: number of the version; the first is 1.
        fingerprint: the version as the policy server names it in its answers.
    """

    def __init__(self, tokenizer: Tokenizer, weights: Floats, version: int) -> None:
        """Take a copy of the weights.

        Raises:
            ValueError: they have another shape than the tokenizer's vocabulary asks for, or are not all finite.
        """
        if weights.shape != weights_shape(tokenizer):
            raise ValueError(f"the weights have the shape {weights.shape}, not {weights_shape(tokenizer)}")
        if not np.isfinite(weights).all():
            raise ValueError("the weights hold NaN or infinity")
        self.tokenizer = tokenizer
        self.weights = weights.copy()
        self.weights.setflags(write=False)
        self.version = version
        self.fingerprint = f"{FINGERPRINT_PREFIX}{version}"
        self._form_first = np.zeros(tokenizer.size)
        self._form_first[[tokenizer.piece_id(tool) for tool in TOOLS]] = FORM_LOGIT
        self._form_later = np.zeros(tokenizer.size)
        self._form_later[tokenizer.end_id] = FORM_LOGIT

    @classmethod
    def initial(cls, tokenizer: Tokenizer, seed: int) -> Policy:
        """The untrained policy of a seed: it answers in form, and guesses."""
        noise = np.random.default_rng(seed).normal(0.0, INITIAL_NOISE, weights_shape(tokenizer))
        return cls(tokenizer, noise, FIRST_VERSION)

    def logprobs(self, context: Sequence[int]) -> Floats:
        """Log-probabilities of the token after ``context`` (prompt ids and the answer so far), shape (vocabulary,)."""
        if context[-1] != self.tokenizer.assistant_id:
            return _log_softmax(self._form_later)
        words = self._words(context)
        logits = self._form_first + self.weights[words].sum(axis=0) * _word_value(words)
        return _log_softmax(logits)

    def sample(self, prompt_ids: Sequence[int], rng: np.random.Generator, temperature: float = 1.0) -> Iterator[Token]:
        """Sample an answer, token by token, up to the end token; temperature 0 takes the likeliest."""
        context = list(prompt_ids)
        while context[-1] != self.tokenizer.end_id:
            logprobs = self.logprobs(context)
            token = Token(_draw(logprobs, temperature, rng), logprobs)
            context.append(token.id)
            yield token

    def add_gradient(
        self, gradient: Floats, prompt_ids: Sequence[int], response_ids: Sequence[int], scale: float
    ) -> None:
        """Add ``scale`` times the gradient of the response's log-probability to ``gradient``, in place.

        Only the first token depends on the weights: what follows it is form.

        Args:
            gradient: shape of the weights.
        """
        words = self._words(prompt_ids)
        slope = -np.exp(self.logprobs(prompt_ids))
        slope[response_ids[0]] += 1.0
        gradient[words] += scale * _word_value(words) * slope

    def _words(self, prompt_ids: Sequence[int]) -> NDArray[np.intp]:
        """The rows of the word pieces in the prompt's last line, each once, in ascending order."""
        line: set[int] = set()
        for token in reversed(prompt_ids):
            if token == self.tokenizer.newline_id:
                break
            if self.tokenizer.is_piece(token):
                line.add(token - self.tokenizer.first_piece_id)
        return np.array(sorted(line), dtype=np.intp)


def weights_shape(tokenizer: Tokenizer) -> tuple[int, int]:
    """The shape of the weights: a row for each word piece to be read, a column for each token to be said."""
    return tokenizer.size - tokenizer.first_piece_id, tokenizer.size


def call_seed(seed: int, task: str, call: int) -> int:
    """The seed of one model call: the same for the same run seed, task and call index, whatever else happens.

    53 bits, so that every JSON reader keeps it whole.
    """
    digest = hashlib.sha256(f"{seed}/{task}/{call}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 11


def _word_value(words: NDArray[np.intp]) -> float:
    """The value of each word: together they have the length 1, so that long lines do not shout."""
    return 1.0 / np.sqrt(max(len(words), 1))


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def _draw(logprobs: Floats, temperature: float, rng: np.random.Generator) -> int:
    if temperature == 0.0:
        return int(logprobs.argmax())
    cumulative = np.exp((logprobs - logprobs.max()) / temperature).cumsum()
    # `right`: a token of weight zero has the same sum as the one before it and must not be drawn.
    return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
