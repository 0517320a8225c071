"""What the doctor says: one finding for each thing that it looks at. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Level: TypeAlias = Literal["ok", "warning", "problem"]

PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at, as in ``memory``.
        level: ``problem`` loses work or stops it, ``warning`` may come to that, ``ok`` is as it should be.
        found: what is there.
        means: what follows from it; empty when all is well.
        todo: what to do about it; empty when all is well.
        where: which server or shard, where there are several.
    """

    check: str
    level: Level
    found: str
    means: str = ""
    todo: str = ""
    where: str = ""


def ok(check: str, found: str, where: str = "") -> Finding:
    """All is well."""
    return Finding(check, "ok", found, where=where)


def age(seconds: float) -> str:
    """How long ago, for people."""
    return f"{max(seconds, 0.0):,.1f} s"
