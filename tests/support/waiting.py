"""Waiting for conditions: the only module of the tests that rests and looks again."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

PATIENCE_S = 20.0  # a loaded machine is slow; a condition that never comes is what this is for
FIRST_PAUSE_S = 0.001
MOST_PAUSE_S = 0.05


def _not_met(what: str, timeout_s: float, last: object) -> AssertionError:
    return AssertionError(f"waited {timeout_s} s for {what}; it was {last!r} in the end")


async def until(
    condition: Callable[[], T | Awaitable[T]], *, timeout_s: float = PATIENCE_S, what: str = "a condition"
) -> T:
    """Wait until ``condition()``, plain or async, is true, and return what it gave.

    Raises:
        AssertionError: it was never true within ``timeout_s``; an exception of the condition goes through.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        given = condition()
        value = cast("T", await given if inspect.isawaitable(given) else given)
        if value:
            return value
        if time.monotonic() > deadline:
            raise _not_met(what, timeout_s, value)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, MOST_PAUSE_S)


def until_blocking(condition: Callable[[], T], *, timeout_s: float = PATIENCE_S, what: str = "a condition") -> T:
    """As ``until``, for code without an event loop."""
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise _not_met(what, timeout_s, value)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, MOST_PAUSE_S)
    return value


async def turns(count: int) -> None:
    """Let every other task of the loop run ``count`` times."""
    for _ in range(count):
        await asyncio.sleep(0)
