"""Which rollout and attempt a call belongs to, read from its path, and what is done with it.

The form is Agent-lightning's: ``/rollout/{rollout_id}/attempt/{attempt_id}`` before a path of the inference server.
Only paths that agents need are let through; the server's administration (pausing, weights, aborts) is not among them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from agl_proxy.asgi import Scope

_PREFIX = re.compile(rb"/rollout/([^/]+)/attempt/([^/]+)(/.*)", re.DOTALL)

CHAT_COMPLETIONS = "/v1/chat/completions"
# Paths whose answers are sampled tokens, and which are not captured: they would be training data that nobody saw.
SAMPLES_UNRECORDED = frozenset({"/v1/completions", "/v1/responses", "/v1/messages", "/v1/chat/completions/batch"})
ADMINISTRATION = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})  # the only such paths below /v1
# Beside /v1: what an agent may ask of vLLM that neither samples nor administrates.
HARMLESS = frozenset({"/tokenize", "/detokenize", "/version", "/health", "/ping"})


class Treatment(enum.Enum):
    """What the proxy does with a call to a path."""

    RECORD = enum.auto()
    """Admit, shape, capture, store."""
    PASS = enum.auto()
    """Forward and forget."""
    UNRECORDED = enum.auto()
    """It samples tokens and there is no capture for it."""
    UNKNOWN = enum.auto()
    """No business of an agent."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where a call belongs.

    Attributes:
        raw_path: the inference server's path, as it was sent; ``path`` is the same decoded.
    """

    rollout_id: str
    attempt_id: str
    raw_path: bytes
    path: str


def attribute(scope: Scope) -> Attribution | None:
    """The attribution of an HTTP call, or None when its path is outside any rollout."""
    match = _PREFIX.fullmatch(raw_path_of(scope))
    if match is None:
        return None
    rollout_id, attempt_id, raw_path = match.groups()
    return Attribution(_decoded(rollout_id), _decoded(attempt_id), raw_path, _decoded(raw_path))


def raw_path_of(scope: Scope) -> bytes:
    """The path as it was sent; servers need not give it, and then it is encoded anew."""
    return scope.get("raw_path") or quote(scope["path"]).encode("ascii")


def treatment(method: str, path: str) -> Treatment:
    """What is done with a call to ``path``, decoded and without its attribution."""
    canonical = path.removesuffix("/")
    segments = canonical.split("/")[1:]
    if any(segment in ("", ".", "..") for segment in segments) or canonical in ADMINISTRATION:
        return Treatment.UNKNOWN  # a server behind us might fold empty and dotted segments into another path
    if canonical == CHAT_COMPLETIONS and method == "POST":
        return Treatment.RECORD
    if canonical in SAMPLES_UNRECORDED and method == "POST":
        return Treatment.UNRECORDED
    if canonical in HARMLESS or segments[:1] == ["v1"]:
        return Treatment.PASS
    return Treatment.UNKNOWN


def _decoded(raw: bytes) -> str:
    return unquote(raw.decode("latin-1"))
