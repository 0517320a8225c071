"""The tools of the demo's agent: one arithmetic operation each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Tool = Callable[[float, float], float]


def add(left: float, right: float) -> float:
    """The sum of two numbers."""
    return left + right


def subtract(left: float, right: float) -> float:
    """The first number less the second."""
    return left - right


def multiply(left: float, right: float) -> float:
    """The product of two numbers."""
    return left * right


def divide(left: float, right: float) -> float:
    """The first number split into as many parts as the second says.

    Raises:
        ZeroDivisionError: the second is 0.
    """
    return left / right


TOOLS: Mapping[str, Tool] = {tool.__name__: tool for tool in (add, subtract, multiply, divide)}


def use_tool(name: str, left: float, right: float) -> float | None:
    """The result of the tool of that name, or None when there is no such tool or no such result (division by zero)."""
    tool = TOOLS.get(name)
    if tool is None:
        return None
    try:
        return tool(left, right)
    except ZeroDivisionError:
        return None
