"""How a call to the inference server fails: the reason for the span and the answer for the client, as one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from agl_proxy.asgi import Receive, Scope, Send
from agl_proxy.errors_openai import ErrorAnswer


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that could not be answered, or not to its end.

    Attributes:
        reason: one of the reasons of `checks`.
    """

    reason: str
    answer: ErrorAnswer


Inner: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[Fault | None]]
"""What makes the answers: an ASGI application. Ours returns how it failed; others return None or raise."""
