"""The text of a sampled answer: whole characters, and nothing of a stop text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams.demo.sampling import Sampling, Step, sample_choice
from agl_streams.demo.tokenizer import Tokenizer
from tests.demo.serving import Scripted

TOKENIZER = Tokenizer.load()
# No character of these is in a word piece, so each is one token, or several where UTF-8 needs several.
TEXTS = st.text(alphabet="0123é€😀", max_size=12)
STOPS = st.lists(st.text(alphabet="0123é€😀", min_size=1, max_size=3), max_size=3)


def answer(text: str, *stops: str, max_tokens: int = 100) -> list[Step]:
    """The steps of a choice in which the policy says ``text``."""
    policy = Scripted(TOKENIZER.encode(text))
    sampling = Sampling(temperature=1.0, seed=1, max_tokens=max_tokens, stops=stops)
    return list(sample_choice(policy, TOKENIZER.encode_chat([("user", "hi")]), sampling, 0))


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What a client may read of ``text``: it ends with the character that completes a stop text, which is cut off."""
    for end in range(1, len(text) + 1):
        met = [(place, stop) for stop in stops if (place := text[:end].find(stop)) >= 0]
        if met:
            place, stop = min(met)
            return text[:place], stop
    return text, None


@given(text=TEXTS, stops=STOPS)
def test_the_text_ends_before_the_first_stop_text(text: str, stops: list[str]) -> None:
    """The pieces together are the text up to the first stop text met, whatever the tokens."""
    steps = answer(text, *stops)
    shown, stop = expected(text, stops)
    assert "".join(step.text for step in steps) == shown
    assert steps[-1].stop_reason == stop
    assert steps[-1].finish_reason == "stop"
    assert all(step.finish_reason is None for step in steps[:-1])


@given(text=TEXTS, limit=st.integers(min_value=1, max_value=40))
def test_the_limit_cuts_tokens(text: str, limit: int) -> None:
    """An answer has at most its limit of tokens, and ends with "length" unless it had ended by itself."""
    ids = [*TOKENIZER.encode(text), TOKENIZER.end_id]
    steps = answer(text, max_tokens=limit)
    assert [step.token.id for step in steps] == ids[:limit]
    assert steps[-1].finish_reason == ("stop" if limit >= len(ids) else "length")
    assert "".join(step.text for step in steps) == TOKENIZER.decode(ids[:limit])


def test_half_a_character_has_no_text() -> None:
    """A token that is part of a character shows nothing until the character is whole."""
    assert [step.text for step in answer("é1")] == ["", "é", "1", ""]


def test_a_text_that_may_become_a_stop_text_is_held_back() -> None:
    """So much of the text is held back as a stop text may have begun with, up to the end of the answer."""
    assert [step.text for step in answer("0120", "23")] == ["", "0", "1", "2", "0"]
    steps = answer("0123", "23")
    assert ["".join(step.text for step in steps), steps[-1].stop_reason] == ["01", "23"]


@pytest.mark.parametrize("name", ["<|user|>", "<|assistant|>"])
def test_control_tokens_are_no_text(name: str) -> None:
    """A control token in the middle of an answer is a token like any other, and not part of the text."""
    ids = [token for token in range(TOKENIZER.size) if TOKENIZER.token_bytes(token) == name.encode()]
    policy = Scripted([TOKENIZER.piece_id("add"), *ids])
    sampling = Sampling(temperature=1.0, seed=None, max_tokens=9)
    steps = list(sample_choice(policy, [0], sampling, 0))
    assert ([step.text for step in steps], len(steps)) == (["add", "", ""], 3)
