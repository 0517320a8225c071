"""The learner: the gradient of a batch, the step it takes, and that it learns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl_streams.demo.learner import Learner, gradient_from_episodes
from agl_streams.demo.policy import Floats, Policy
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.errors import InvalidRequest
from agl_streams.models import Triplet, TripletPrompt, TripletResponse

TOKENIZER = Tokenizer.load()
POLICY = Policy.initial(TOKENIZER, seed=1)
STEPS = ("Each box holds 3. How many in all?", "She gives away 3. How many are left?")
TOOLS = ("multiply", "subtract")


def call(step: str, tool: str, reward: float | None) -> Triplet:
    """A model call that chose a tool."""
    prompt = TOKENIZER.encode_chat([("user", f"A story.\n{step}")])
    response = [TOKENIZER.piece_id(tool), TOKENIZER.end_id]
    return Triplet(prompt=TripletPrompt(token_ids=prompt), response=TripletResponse(token_ids=response), reward=reward)


def episode(tools: Sequence[str], reward: float | None) -> list[Triplet]:
    """A rollout that used these tools, one for each step."""
    return [call(step, tool, reward) for step, tool in zip(STEPS, tools, strict=True)]


def gain(gradient: Floats, step: str, tool: str) -> float:
    """How much following the gradient raises the log-probability of a tool at a step."""
    slope = np.zeros_like(gradient)
    triplet = call(step, tool, None)
    POLICY.add_gradient(slope, triplet.prompt.token_ids, triplet.response.token_ids, 1.0)
    return float((slope * gradient).sum())


def test_the_gradient_raises_what_did_better_than_the_others() -> None:
    """Tools of an episode above the others' mean become likelier, those of one below it less likely."""
    gradient = gradient_from_episodes(POLICY, [episode(TOOLS, 1.0), episode(("add", "add"), 0.0)])
    for step, tool in zip(STEPS, TOOLS, strict=True):
        assert gain(gradient, step, tool) > 0
        assert gain(gradient, step, "add") < 0


@settings(max_examples=20, deadline=None)  # each makes matrices of the weights' size
@given(st.floats(0, 1))
def test_equal_rewards_teach_nothing(reward: float) -> None:
    """When all episodes earn the same there is no advantage and no gradient."""
    gradient = gradient_from_episodes(POLICY, [episode(TOOLS, reward), episode(("add", "divide"), reward)])
    assert np.allclose(gradient, 0.0)


def test_the_baseline_of_an_episode_is_the_mean_of_the_others() -> None:
    """The gradient is the mean over episodes of (reward - mean reward of the others) times the score."""
    rewards = (1.0, 0.25, 0.0)
    episodes = [episode(tools, reward) for tools, reward in zip((TOOLS, ("add", "add"), ("divide", "add")), rewards)]  # noqa: B905 — both have three
    expected = np.zeros_like(POLICY.weights)
    for index, played in enumerate(episodes):
        others = [reward for place, reward in enumerate(rewards) if place != index]
        advantage = rewards[index] - sum(others) / len(others)
        for triplet in played:
            POLICY.add_gradient(expected, triplet.prompt.token_ids, triplet.response.token_ids, advantage / 3)
    assert np.allclose(gradient_from_episodes(POLICY, episodes), expected)


def test_an_episode_without_calls_is_left_out() -> None:
    """An episode whose captures were all incomplete neither teaches nor counts as a zero."""
    episodes = [episode(TOOLS, 1.0), episode(("add", "add"), 0.0)]
    assert np.array_equal(gradient_from_episodes(POLICY, [*episodes, []]), gradient_from_episodes(POLICY, episodes))


def test_one_episode_is_too_few() -> None:
    """A single episode has nothing to be compared with."""
    with pytest.raises(InvalidRequest, match="at least two episodes"):
        gradient_from_episodes(POLICY, [episode(TOOLS, 1.0)])


def test_a_missing_reward_is_an_error() -> None:
    """An episode without a reward cannot be judged, and is not taken for a zero."""
    with pytest.raises(InvalidRequest, match="no reward"):
        gradient_from_episodes(POLICY, [episode(TOOLS, 1.0), episode(TOOLS, None)])


def test_a_step_makes_the_next_version() -> None:
    """A step reports the mean reward and the gradient it used, and leaves the old version as it was."""
    learner = Learner(POLICY)
    before = POLICY.weights.copy()
    episodes = {"b": episode(TOOLS, 1.0), "a": episode(("add", "add"), 0.0)}
    step = learner.step(episodes)
    assert step.mean_reward == 0.5
    assert (step.version, learner.policy.version) == (2, 2)
    assert np.array_equal(step.gradient, gradient_from_episodes(POLICY, [episodes["a"], episodes["b"]]))
    assert np.array_equal(POLICY.weights, before)
    assert not np.array_equal(learner.policy.weights, before)


def test_another_version_teaches_nothing() -> None:
    """Calls that another version of the policy has answered are refused, and the policy stays as it is."""
    learner = Learner(POLICY)
    late = [
        triplet.model_copy(update={"metadata": {"system_fingerprint": "agl-policy-7"}}) for triplet in episode(TOOLS, 1)
    ]
    with pytest.raises(InvalidRequest, match=r"rollout 'a' was answered by 'agl-policy-7'.*'agl-policy-1'"):
        learner.step({"a": late, "b": episode(TOOLS, 0.0)})
    assert learner.policy is POLICY


def test_the_order_of_arrival_does_not_matter() -> None:
    """Two learners that are given the same episodes in another order have bit for bit the same weights."""
    episodes = {f"r-{number}": episode((tool, "add"), number / 4) for number, tool in enumerate(("add", *TOOLS))}
    one, other = Learner(POLICY), Learner(POLICY)
    for _ in range(3):
        one.step(episodes)
        other.step(dict(reversed(episodes.items())))
    assert np.array_equal(one.policy.weights, other.policy.weights)


def test_it_learns_which_tool_pays() -> None:
    """After some batches the rewarded tools are nearly certain, and the others nearly forgotten."""
    learner = Learner(POLICY)
    rng = np.random.default_rng(5)
    for _ in range(15):
        batch: dict[str, list[Triplet]] = {}
        for number in range(16):
            played: list[Triplet] = []
            right = 0
            for step, tool in zip(STEPS, TOOLS, strict=True):
                prompt = call(step, tool, None).prompt
                response = [token.id for token in learner.policy.sample(prompt.token_ids, rng)]
                right += TOKENIZER.decode(response) == tool
                played.append(Triplet(prompt=prompt, response=TripletResponse(token_ids=response)))
            batch[f"r-{number}"] = [triplet.model_copy(update={"reward": right / 2}) for triplet in played]
        learner.step(batch)
    for step, tool in zip(STEPS, TOOLS, strict=True):
        prompt = call(step, tool, None).prompt.token_ids
        assert np.exp(learner.policy.logprobs(prompt)[TOKENIZER.piece_id(tool)]) > 0.9
