"""Any text has token ids, and they give the text back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams.demo.tokenizer import CONTROL_TOKENS, Tokenizer

TOKENIZER = Tokenizer.load()
texts = st.text() | st.lists(st.sampled_from(["add", " each", "\n", "<|end|>", " ", "é", "🙂", "7"])).map("".join)


@given(texts)
def test_text_survives_the_round_trip(text: str) -> None:
    """Decoding the ids of a text gives the text."""
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(texts)
def test_text_never_becomes_a_control_token(text: str) -> None:
    """No text can end its own message or begin another."""
    assert not any(TOKENIZER.is_control(token) for token in TOKENIZER.encode(text))


@given(texts)
def test_ids_are_in_the_vocabulary(text: str) -> None:
    """Every id is below the size of the vocabulary."""
    assert all(0 <= token < TOKENIZER.size for token in TOKENIZER.encode(text))


@given(st.lists(st.integers(0, TOKENIZER.size - 1)))
def test_any_ids_have_a_text(ids: list[int]) -> None:
    """Sampled ids may be anything, half characters included, and still decode."""
    assert isinstance(TOKENIZER.decode(ids), str)
    assert len(TOKENIZER.show(ids)) >= len(TOKENIZER.decode(ids))


def test_a_known_word_is_one_token() -> None:
    """A word of the vocabulary has one id, in the form with a space before it too."""
    assert TOKENIZER.encode("add") == [TOKENIZER.piece_id("add")]
    assert TOKENIZER.encode("add each") == [TOKENIZER.piece_id("add"), TOKENIZER.piece_id(" each")]


def test_an_unknown_word_is_spelt_in_bytes() -> None:
    """A word outside the vocabulary has one id for each byte."""
    assert len(TOKENIZER.encode("Zürich")) == len("Zürich".encode())


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    """What UTF-8 cannot hold does not break the encoding."""
    assert TOKENIZER.decode(TOKENIZER.encode("a\ud800b")) == "a?b"


def test_a_conversation_ends_where_the_answer_begins() -> None:
    """The prompt of a conversation holds each message with its role and end, then the assistant's turn."""
    ids = TOKENIZER.encode_chat([("system", "add"), ("user", "each")])
    assert TOKENIZER.show(ids) == "<|system|>add<|end|><|user|>each<|end|><|assistant|>"
    assert ids[-1] == TOKENIZER.assistant_id
    assert TOKENIZER.decode(ids) == "addeach"


def test_an_unknown_role_is_refused() -> None:
    """A message of a role that the template lacks is an error."""
    with pytest.raises(ValueError, match="referee"):
        TOKENIZER.encode_chat([("referee", "offside")])


def test_the_vocabulary_has_no_piece_twice() -> None:
    """Each id is another token, so ids and pieces belong together one to one."""
    pieces = [TOKENIZER.token_bytes(token) for token in range(TOKENIZER.first_piece_id, TOKENIZER.size)]
    assert len(set(pieces)) == len(pieces)
    assert TOKENIZER.first_piece_id == len(CONTROL_TOKENS) + 256
