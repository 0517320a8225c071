"""An agent written with agl-streams, for its own worker: emits what agentlightning's readers read."""

from __future__ import annotations

from typing import Any

from agl_streams import emit_exception, emit_message, emit_reward, rollout


@rollout
def agent(task: dict[str, Any]) -> float:
    """Emit one span of each kind, and end with a reward."""
    emit_message("thinking é", attributes={"level": "debug"})
    try:
        raise KeyError("missing")
    except KeyError as error:
        emit_exception(error)
    emit_reward(0.25)
    emit_reward({"speed": 2.0, "accuracy": 0.75}, primary_key="accuracy")
    return 1.0
