"""agl-streams: the durable backbone for training agents.

Rollouts (units of work), attempts (tries at them) and spans (what happened during a try) are events in Redis streams.
The public names below are resolved on first use (PEP 562), so that importing the package costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agl_streams.config import Settings, load_settings
    from agl_streams.errors import (
        AglError,
        AttemptEnded,
        ConfigError,
        Conflict,
        InvalidRequest,
        NotFound,
        StoreUnavailable,
        Superseded,
    )

# Where each public name lives. A guard test compares this table with `__all__` and with the imports above.
_HOMES = {
    "AglError": "agl_streams.errors",
    "AttemptEnded": "agl_streams.errors",
    "ConfigError": "agl_streams.errors",
    "Conflict": "agl_streams.errors",
    "InvalidRequest": "agl_streams.errors",
    "NotFound": "agl_streams.errors",
    "Settings": "agl_streams.config",
    "StoreUnavailable": "agl_streams.errors",
    "Superseded": "agl_streams.errors",
    "load_settings": "agl_streams.config",
}

__all__ = [
    "AglError",
    "AttemptEnded",
    "ConfigError",
    "Conflict",
    "InvalidRequest",
    "NotFound",
    "Settings",
    "StoreUnavailable",
    "Superseded",
    "load_settings",
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
