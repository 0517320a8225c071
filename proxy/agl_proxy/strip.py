"""Takes out of an answer what the proxy added to the request and the client did not ask for."""

from __future__ import annotations

from typing import Any, cast

from agl_proxy.capture import Edit
from agl_proxy.shaping import ChatRequest


def stripping(request: ChatRequest) -> Edit | None:
    """The change to make in answers to ``request``; None when its client asked for all that is in them."""
    fields = [
        name
        for name, asked in (("token_ids", request.asked_token_ids), ("logprobs", request.asked_logprobs))
        if not asked
    ]
    if not fields:
        return None

    def strip(answer: dict[str, Any]) -> bool:
        changed = "token_ids" in fields and _clear(answer, "prompt_token_ids")
        for choice in cast("list[dict[str, Any]]", answer.get("choices") or []):
            for name in fields:
                changed = _clear(choice, name) or changed
        return changed

    return strip


def _clear(data: dict[str, Any], name: str) -> bool:
    """Set a field that is there to null, as vLLM leaves it when it was not asked for."""
    if data.get(name) is None:
        return False
    data[name] = None
    return True
