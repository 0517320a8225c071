"""What the author of an agent imports, and what a runner needs to run one.

An agent is a function of a task, decorated with `rollout`. While it runs, `emit_reward` and its like find its attempt
by themselves; what it returns becomes spans of the attempt.
"""

from agl_streams.agent.call import call_agent
from agl_streams.agent.context import AttemptContext, Sink, current_context
from agl_streams.agent.decorator import Agent, rollout
from agl_streams.agent.emit import emit_exception, emit_message, emit_reward
from agl_streams.agent.results import exception_span, spans_for_result

__all__ = [
    "Agent",
    "AttemptContext",
    "Sink",
    "call_agent",
    "current_context",
    "emit_exception",
    "emit_message",
    "emit_reward",
    "exception_span",
    "rollout",
    "spans_for_result",
]
