"""agl-streams: the durable backbone for training agents.

Rollouts (units of work), attempts (tries at them) and spans (what happened during a try) are events in Redis streams.
The public names below are resolved on first use (PEP 562), so that importing the package costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agl_streams.adapters import TripletAdapter, TripletBatch
    from agl_streams.agent import (
        Agent,
        AttemptContext,
        current_context,
        emit_exception,
        emit_message,
        emit_reward,
        rollout,
    )
    from agl_streams.client import StoreClient
    from agl_streams.config import Settings, load_settings
    from agl_streams.consumer import RolloutConsumer
    from agl_streams.engine import Engine
    from agl_streams.errors import (
        AgentError,
        AglError,
        AttemptEnded,
        AuthenticationFailed,
        CaptureError,
        Changed,
        CommandFailed,
        ConfigError,
        Conflict,
        EngineError,
        ForeignKey,
        Gap,
        InvalidRequest,
        NamespaceError,
        NotFound,
        NotReplicated,
        OutOfMemory,
        ServerReadOnly,
        ServerRefused,
        ServerTooOld,
        StoreUnavailable,
        Superseded,
        TooLarge,
        Upgrade,
        WrongLoop,
        WrongShardCount,
    )
    from agl_streams.models import (
        LLM,
        UNSET,
        Attempt,
        AttemptedRollout,
        DeadLetter,
        EnqueueRolloutRequest,
        NamedResources,
        PaginatedResult,
        PromptTemplate,
        ProxyLLM,
        ResourcesUpdate,
        Rollout,
        RolloutConfig,
        Span,
        Triplet,
        Worker,
    )
    from agl_streams.store import StreamStore

    __version__: str

# Where each public name lives. A guard test compares this table with `__all__` and with the imports above.
_HOMES = {
    "LLM": "agl_streams.models",
    "UNSET": "agl_streams.models",
    "Agent": "agl_streams.agent",
    "AgentError": "agl_streams.errors",
    "AglError": "agl_streams.errors",
    "Attempt": "agl_streams.models",
    "AttemptContext": "agl_streams.agent",
    "AttemptEnded": "agl_streams.errors",
    "AttemptedRollout": "agl_streams.models",
    "AuthenticationFailed": "agl_streams.errors",
    "CaptureError": "agl_streams.errors",
    "Changed": "agl_streams.errors",
    "CommandFailed": "agl_streams.errors",
    "ConfigError": "agl_streams.errors",
    "Conflict": "agl_streams.errors",
    "DeadLetter": "agl_streams.models",
    "Engine": "agl_streams.engine",
    "EngineError": "agl_streams.errors",
    "EnqueueRolloutRequest": "agl_streams.models",
    "ForeignKey": "agl_streams.errors",
    "Gap": "agl_streams.errors",
    "InvalidRequest": "agl_streams.errors",
    "NamedResources": "agl_streams.models",
    "NamespaceError": "agl_streams.errors",
    "NotFound": "agl_streams.errors",
    "NotReplicated": "agl_streams.errors",
    "OutOfMemory": "agl_streams.errors",
    "PaginatedResult": "agl_streams.models",
    "PromptTemplate": "agl_streams.models",
    "ProxyLLM": "agl_streams.models",
    "ResourcesUpdate": "agl_streams.models",
    "Rollout": "agl_streams.models",
    "RolloutConfig": "agl_streams.models",
    "RolloutConsumer": "agl_streams.consumer",
    "ServerReadOnly": "agl_streams.errors",
    "ServerRefused": "agl_streams.errors",
    "ServerTooOld": "agl_streams.errors",
    "Settings": "agl_streams.config",
    "Span": "agl_streams.models",
    "StoreClient": "agl_streams.client",
    "StoreUnavailable": "agl_streams.errors",
    "StreamStore": "agl_streams.store",
    "Superseded": "agl_streams.errors",
    "TooLarge": "agl_streams.errors",
    "Triplet": "agl_streams.models",
    "TripletAdapter": "agl_streams.adapters",
    "TripletBatch": "agl_streams.adapters",
    "Upgrade": "agl_streams.errors",
    "Worker": "agl_streams.models",
    "WrongLoop": "agl_streams.errors",
    "WrongShardCount": "agl_streams.errors",
    "current_context": "agl_streams.agent",
    "emit_exception": "agl_streams.agent",
    "emit_message": "agl_streams.agent",
    "emit_reward": "agl_streams.agent",
    "load_settings": "agl_streams.config",
    "rollout": "agl_streams.agent",
}

__all__ = [
    "LLM",
    "UNSET",
    "Agent",
    "AgentError",
    "AglError",
    "Attempt",
    "AttemptContext",
    "AttemptEnded",
    "AttemptedRollout",
    "AuthenticationFailed",
    "CaptureError",
    "Changed",
    "CommandFailed",
    "ConfigError",
    "Conflict",
    "DeadLetter",
    "Engine",
    "EngineError",
    "EnqueueRolloutRequest",
    "ForeignKey",
    "Gap",
    "InvalidRequest",
    "NamedResources",
    "NamespaceError",
    "NotFound",
    "NotReplicated",
    "OutOfMemory",
    "PaginatedResult",
    "PromptTemplate",
    "ProxyLLM",
    "ResourcesUpdate",
    "Rollout",
    "RolloutConfig",
    "RolloutConsumer",
    "ServerReadOnly",
    "ServerRefused",
    "ServerTooOld",
    "Settings",
    "Span",
    "StoreClient",
    "StoreUnavailable",
    "StreamStore",
    "Superseded",
    "TooLarge",
    "Triplet",
    "TripletAdapter",
    "TripletBatch",
    "Upgrade",
    "Worker",
    "WrongLoop",
    "WrongShardCount",
    "current_context",
    "emit_exception",
    "emit_message",
    "emit_reward",
    "load_settings",
    "rollout",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # reading the metadata takes longer than the rest of this module

        return version("agl-streams")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agl_streams' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
