"""The policy: probabilities, sampling that repeats itself, and gradients."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl_streams.demo.policy import Floats, Policy, call_seed, weights_shape
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.demo.tools import TOOLS

TOKENIZER = Tokenizer.load()
POLICY = Policy.initial(TOKENIZER, seed=3)
PROMPT = TOKENIZER.encode_chat([("user", "A tale of 5 crates.\nStep 1: Each box holds 3 candles. How many in all?")])
ADD = TOKENIZER.piece_id("add")


def trained(seed: int, size: float = 2.0) -> Policy:
    """A policy with strong opinions."""
    weights = np.random.default_rng(seed).normal(0.0, size, weights_shape(TOKENIZER))
    return Policy(TOKENIZER, weights, version=2)


def answer(policy: Policy, seed: int, temperature: float = 1.0) -> list[int]:
    """The ids of a sampled answer."""
    return [token.id for token in policy.sample(PROMPT, np.random.default_rng(seed), temperature)]


def response_logprob(policy: Policy, weights: Floats, response: list[int]) -> float:
    """The log-probability of a response under other weights."""
    other = Policy(policy.tokenizer, weights, policy.version)
    contexts = [[*PROMPT, *response[:position]] for position in range(len(response))]
    return float(sum(other.logprobs(context)[token] for context, token in zip(contexts, response, strict=True)))


def test_probabilities_add_up_to_one() -> None:
    """At every place of an answer the probabilities of the vocabulary sum to one."""
    policy = trained(1)
    for context in (PROMPT, [*PROMPT, ADD]):
        assert np.exp(policy.logprobs(context)).sum() == pytest.approx(1.0)


def test_the_untrained_policy_answers_in_form_and_guesses() -> None:
    """Nearly all answers are one tool and the end, and each tool is as likely as the others."""
    answers = [answer(POLICY, seed) for seed in range(400)]
    tools = {TOKENIZER.piece_id(tool) for tool in TOOLS}
    in_form = [ids[0] for ids in answers if len(ids) == 2 and ids[0] in tools and ids[1] == TOKENIZER.end_id]
    assert len(in_form) >= 390
    assert min(Counter(in_form).values()) >= 60


def test_a_seed_repeats_its_sample() -> None:
    """The same prompt and seed give the same ids and log-probabilities; other seeds give others."""
    first, again = (list(POLICY.sample(PROMPT, np.random.default_rng(7))) for _ in range(2))
    assert [token.id for token in first] == [token.id for token in again]
    assert [token.logprob for token in first] == [token.logprob for token in again]
    assert len({tuple(answer(POLICY, seed)) for seed in range(40)}) > 1


def test_the_likeliest_answer_is_drawn_at_temperature_zero() -> None:
    """Temperature 0 ignores the seed and takes the likeliest token."""
    policy = trained(2)
    likeliest = int(policy.logprobs(PROMPT).argmax())
    assert {answer(policy, seed, temperature=0.0)[0] for seed in range(20)} == {likeliest}


def test_logprobs_do_not_depend_on_the_temperature() -> None:
    """Reported log-probabilities are those of the policy itself, as vLLM reports them."""
    (token, *_) = POLICY.sample(PROMPT, np.random.default_rng(1), temperature=5.0)
    assert token.logprob == POLICY.logprobs(PROMPT)[token.id]


def test_only_the_last_line_matters() -> None:
    """Words before the last line break do not change what the policy says; words after it do."""
    policy = trained(3)
    other_story = TOKENIZER.encode_chat([("user", "A tree.\nStep 1: Each box holds 3 candles. How many in all?")])
    other_step = TOKENIZER.encode_chat([("user", "A tale of 5 crates.\nStep 1: She gives away 3. How many are left?")])
    assert (policy.logprobs(PROMPT) == policy.logprobs(other_story)).all()
    assert not (policy.logprobs(PROMPT) == policy.logprobs(other_step)).all()


def test_a_prompt_without_known_words_still_has_an_answer() -> None:
    """A prompt of nothing but bytes leaves the policy with its habit of form."""
    prompt = TOKENIZER.encode_chat([("user", "\n42")])
    assert np.isfinite(trained(4).logprobs(prompt)).all()


@settings(max_examples=15, deadline=None)  # each draws four matrices of the weights' size
@given(seed=st.integers(0, 2**32), pick=st.integers(0, 2**32))
def test_the_gradient_is_the_slope_of_the_log_probability(seed: int, pick: int) -> None:
    """Moving the weights a little along any direction changes the log-probability as the gradient says."""
    policy = trained(seed, size=0.5)
    rng = np.random.default_rng(pick)
    response = [int(rng.integers(TOKENIZER.size)), TOKENIZER.end_id]
    gradient = np.zeros_like(policy.weights)
    policy.add_gradient(gradient, PROMPT, response, 1.0)
    direction = rng.normal(size=policy.weights.shape)
    step = 1e-5
    rise = response_logprob(policy, policy.weights + step * direction, response)
    fall = response_logprob(policy, policy.weights - step * direction, response)
    assert (rise - fall) / (2 * step) == pytest.approx(float((gradient * direction).sum()), rel=1e-4, abs=1e-6)


def test_gradients_add_up_and_scale() -> None:
    """The gradient is added to what is there, times the scale."""
    once, twice = np.zeros_like(POLICY.weights), np.zeros_like(POLICY.weights)
    POLICY.add_gradient(once, PROMPT, [ADD, TOKENIZER.end_id], 1.0)
    for _ in range(2):
        POLICY.add_gradient(twice, PROMPT, [ADD, TOKENIZER.end_id], -0.5)
    assert np.allclose(twice, -once)


def test_a_policy_cannot_be_changed() -> None:
    """The weights are a read-only copy, so a version means the same to all who hold it."""
    weights = np.zeros(weights_shape(TOKENIZER))
    policy = Policy(TOKENIZER, weights, version=5)
    weights[:] = 1.0
    assert (policy.weights == 0.0).all()
    assert not policy.weights.flags.writeable
    assert policy.fingerprint == "agl-policy-5"


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (np.zeros((3, 3)), r"\(3, 3\)"),
        (np.full(weights_shape(TOKENIZER), np.nan), "NaN"),
        (np.full(weights_shape(TOKENIZER), np.inf), "infinity"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: Floats, complaint: str) -> None:
    """Weights of another shape, or with NaN or infinity, make no policy."""
    with pytest.raises(ValueError, match=complaint):
        Policy(TOKENIZER, weights, version=2)


@given(st.integers(0, 2**63), st.text(max_size=20), st.integers(0, 9))
def test_the_seed_of_a_call_fits_every_json_reader(seed: int, task: str, call: int) -> None:
    """A call's seed repeats itself and is below 2**53."""
    assert call_seed(seed, task, call) == call_seed(seed, task, call)
    assert 0 <= call_seed(seed, task, call) < 2**53


def test_seeds_differ_by_run_task_and_call() -> None:
    """No two calls of a run share a seed by their place alone."""
    seeds = {call_seed(seed, f"{batch}-{task}", call) for seed in (0, 1) for batch in (0, 1) for task in (0, 1)
             for call in (0, 1)}  # fmt: skip
    assert len(seeds) == 16
