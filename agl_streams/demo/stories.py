"""The stories behind the word problems: 48 of them, three for each ordered pair of tools.

``compose.py`` fills the slots and draws the numbers. ``{a}`` and ``{b}`` belong to the first step; ``{c}`` joins the
result of the first step in the second. ``{name}``, ``{friend}``, ``{She}``, ``{she}`` and ``{her}`` are a person each;
every other slot is chosen from the story's own list.
"""

from __future__ import annotations

from agl_streams.demo.stories_additive import ADDITION_FIRST, SUBTRACTION_FIRST
from agl_streams.demo.stories_multiplicative import DIVISION_FIRST, MULTIPLICATION_FIRST

STORIES = ADDITION_FIRST + SUBTRACTION_FIRST + MULTIPLICATION_FIRST + DIVISION_FIRST
