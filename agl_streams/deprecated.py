"""Names of parameters that Agent-lightning has replaced: they work, and say what to write instead."""

from __future__ import annotations

import warnings
from typing import Final, TypeVar

T = TypeVar("T")

CALLER: Final = 3  # frames up from the warning: this function, the method, who awaits it


def renamed(new: T | None, old: T | None, *, name: str, instead: str) -> T | None:
    """The value of a parameter that may have been given under its old name. Where both are given the new one counts.

    Args:
        new, old: what was given under either name; None is not given.
        name, instead: the old name and the new one.
    """
    if old is None:
        return new
    warnings.warn(f"{name} is deprecated, use {instead} instead", DeprecationWarning, stacklevel=CALLER)
    return old if new is None else new
