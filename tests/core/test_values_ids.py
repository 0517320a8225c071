"""The forms of ids: which are accepted, which are refused, and that fresh ones fit."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_streams import values
from agl_streams.errors import InvalidRequest

Check = Callable[[str], str]

GIVEN: list[Check] = [values.check_rollout_id, values.check_attempt_id, values.check_namespace]
TEXT: list[Check] = [values.check_worker_id, values.check_resources_id]


@pytest.mark.parametrize("check", GIVEN)
@given(text=st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True).filter(lambda t: t not in ("latest", "search")))
def test_ids_that_are_safe_in_paths_are_accepted(check: Check, text: str) -> None:
    """Every text of the allowed characters and length is its own id."""
    assert check(text) == text


@pytest.mark.parametrize("check", GIVEN)
@pytest.mark.parametrize("text", ["", "a b", "a/b", "ü", "a\n", "a{b}", "a:b", "x" * 129, None, 5, b"a", "\ud800"])
def test_ids_with_odd_characters_are_refused(check: Check, text: str) -> None:
    """The error says what is allowed and what it got."""
    with pytest.raises(InvalidRequest, match=r"must be 1 to 128 characters of .*, got "):
        check(text)


@pytest.mark.parametrize("check", GIVEN)
@pytest.mark.parametrize("word", ["latest", "search"])
def test_path_words_are_no_ids(check: Check, word: str) -> None:
    """A word that is part of the HTTP API cannot name a thing."""
    with pytest.raises(InvalidRequest, match=f"{word!r} is a reserved word"):
        check(word)


@pytest.mark.parametrize("check", TEXT)
@pytest.mark.parametrize("text", ["w", "Worker 1", "host:3/läuft{x}", "x" * 256, "latest"])
def test_printable_text_names_workers_and_resources(check: Check, text: str) -> None:
    """Spaces, slashes and letters of any language are fine."""
    assert check(text) == text


@pytest.mark.parametrize("check", TEXT)
@pytest.mark.parametrize("text", ["", "a\nb", "\x00", "x" * 257, None, 5, b"w", "\ud800"])
def test_other_texts_name_nothing(check: Check, text: str) -> None:
    """Control characters, emptiness, length and other types are refused."""
    with pytest.raises(InvalidRequest, match="must be 1 to 256 printable characters, got "):
        check(text)


@pytest.mark.parametrize(
    ("new", "form"),
    [
        (values.new_rollout_id, r"ro-[0-9a-f]{12}"),
        (values.new_attempt_id, r"at-[0-9a-f]{8}"),
        (values.new_resources_id, r"rs-[0-9a-f]{12}"),
    ],
)
def test_fresh_ids_have_the_form_of_their_kind(new: Callable[[], str], form: str) -> None:
    """A prefix tells the kind, random hex digits the thing."""
    first, second = new(), new()
    assert first != second
    assert re.fullmatch(form, first)
