"""Waiting ends with the condition, or tells what it waited for."""

from __future__ import annotations

import pytest

from tests.support.waiting import until, until_blocking


async def test_until_returns_what_the_condition_gave() -> None:
    """Plain and async conditions are looked at until one is true, and its value is returned."""
    looks: list[int] = []

    async def third() -> int:
        looks.append(1)
        return len(looks) if len(looks) == 3 else 0

    assert await until(third) == 3
    assert await until(lambda: "at once") == "at once"
    assert until_blocking(lambda: [1]) == [1]


async def test_until_tells_what_never_came() -> None:
    """A condition that stays false fails with its name and last value."""
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for the moon; it was 0 in the end"):
        await until(lambda: 0, timeout_s=0.01, what="the moon")
    with pytest.raises(AssertionError, match="the sun"):
        until_blocking(lambda: 0, timeout_s=0.01, what="the sun")
