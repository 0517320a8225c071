"""Chapter 7: a learner eats triplets: what the model was given, what it sampled, and the reward that came of it."""

from __future__ import annotations

import pytest

from agl_streams import AttemptedRollout, Span, StreamStore, TripletAdapter, semconv
from tests.support.spans import call_attributes, model_call, reward


@pytest.fixture
async def attempt(store: StreamStore) -> AttemptedRollout:
    """A rollout with its first attempt open."""
    return await store.start_rollout({"question": "What is 2 + 2?"})


async def spans_of(store: StreamStore, attempt: AttemptedRollout, *spans: Span) -> list[Span]:
    """The spans as they come back from the store, as those of the attempt."""
    ids = {"rollout_id": attempt.rollout_id, "attempt_id": attempt.attempt.attempt_id}
    await store.add_many_spans([span.model_copy(update=ids) for span in spans])
    return list(await store.query_spans(attempt.rollout_id))


async def test_a_model_call_and_its_reward_are_a_triplet(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A triplet holds the very token ids and log-probabilities that were sampled, and the reward that followed."""
    call = model_call(1, call_attributes([1, 87, 505], ([1397, 2], [-0.5, -1.25])))
    spans = await spans_of(store, attempt, call, reward(2, 1.0))

    (triplet,) = TripletAdapter().adapt(spans).triplets

    assert triplet.prompt.token_ids == [1, 87, 505]
    assert (triplet.response.token_ids, triplet.response.logprobs) == ([1397, 2], [-0.5, -1.25])
    assert triplet.reward == 1.0
    assert triplet.metadata["rollout_id"] == attempt.rollout_id


async def test_triplets_are_in_the_order_of_the_calls(store: StreamStore, attempt: AttemptedRollout) -> None:
    """Calls are ordered by their number within the rollout, whenever their spans arrived."""
    spans = await spans_of(store, attempt, model_call(3), model_call(1), model_call(2))

    triplets = TripletAdapter().adapt(spans).triplets

    assert [triplet.prompt.token_ids for triplet in triplets] == [[1], [2], [3]]


async def test_a_reward_belongs_to_the_call_before_it(store: StreamStore, attempt: AttemptedRollout) -> None:
    """Each reward goes to the latest call before it that has none yet."""
    spans = await spans_of(store, attempt, model_call(1), reward(2, 0.25), model_call(3), reward(4, 1.0))

    triplets = TripletAdapter().adapt(spans).triplets

    assert [triplet.reward for triplet in triplets] == [0.25, 1.0]


async def test_one_final_reward_may_stand_for_all_calls(store: StreamStore, attempt: AttemptedRollout) -> None:
    """With the rule final every call of the attempt gets the last reward."""
    spans = await spans_of(store, attempt, model_call(1), model_call(2), reward(3, 1.0))

    assert [triplet.reward for triplet in TripletAdapter().adapt(spans).triplets] == [None, 1.0]
    assert [triplet.reward for triplet in TripletAdapter(reward_match="final").adapt(spans).triplets] == [1.0, 1.0]


async def test_an_incomplete_capture_is_left_out_and_counted(store: StreamStore, attempt: AttemptedRollout) -> None:
    """A call whose tokens are not all there never becomes training data, and the batch says how many and why."""
    cut_short = {semconv.CALL_COMPLETE: False, semconv.CALL_INCOMPLETE_REASON: "client_gone"}
    spans = await spans_of(store, attempt, model_call(1), model_call(2, cut_short), reward(3, 1.0))

    batch = TripletAdapter().adapt(spans)

    assert [triplet.prompt.token_ids for triplet in batch.triplets] == [[1]]
    assert batch.left_out == {"client_gone": 1}
    assert batch.triplets[0].reward is None, "the reward was for the call that is left out"


async def test_a_call_with_several_answers_is_several_triplets(store: StreamStore, attempt: AttemptedRollout) -> None:
    """Each choice of a call is a triplet of its own, with the same prompt."""
    call = model_call(1, call_attributes([5], ([10], [-0.5]), ([11, 12], [-0.25, -1.0])))
    spans = await spans_of(store, attempt, call)

    triplets = TripletAdapter().adapt(spans).triplets

    assert [(one.prompt.token_ids, one.response.token_ids) for one in triplets] == [([5], [10]), ([5], [11, 12])]


async def test_attempts_do_not_share_rewards(store: StreamStore, attempt: AttemptedRollout) -> None:
    """The reward of a later attempt says nothing about the calls of an earlier one."""
    await spans_of(store, attempt, model_call(1))
    second = await store.start_attempt(attempt.rollout_id)
    spans = await spans_of(store, second, model_call(2), reward(3, 1.0))

    rewards = {one.metadata["attempt_id"]: one.reward for one in TripletAdapter().adapt(spans).triplets}

    assert rewards == {attempt.attempt.attempt_id: None, second.attempt.attempt_id: 1.0}
