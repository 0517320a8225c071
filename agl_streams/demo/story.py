"""One story behind word problems: sentences with slots, the numbers' ranges and the right tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Range = tuple[int, int]


@dataclass(frozen=True)
class Story:
    """One two-step story with slots.

    Attributes:
        tools: the right tool of the first and of the second step.
        given: what the text tells before each step.
        asks: the question of each step; the last one is the question of the problem.
        ranges: bounds (inclusive) of a, b and c.
        slots: words to choose from.
        swapped: the second step is tool(c, result) and not tool(result, c).
    """

    tools: tuple[str, str]
    given: tuple[str, str]
    asks: tuple[str, str]
    ranges: tuple[Range, Range, Range]
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    swapped: bool = False
