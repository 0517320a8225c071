"""From ``MODULE:AGENT`` to an agent."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, cast

from agl_streams.agent import Agent, rollout
from agl_streams.errors import ConfigError, InvalidRequest


def load_agent(reference: str) -> Agent[..., Any]:
    """The agent that ``MODULE:AGENT`` names; a plain function becomes one.

    Raises:
        ConfigError: the module cannot be imported, has no such name, or it is no agent.
    """
    module_name, separator, path = reference.partition(":")
    if not (module_name and separator and path):
        raise ConfigError(f"{reference!r} names no agent: give MODULE:AGENT, as in my_agents.math:solve")
    found = _import(reference, module_name)
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ConfigError(f"agent {reference!r}: {error}") from error
    if isinstance(found, Agent):
        return cast("Agent[..., Any]", found)
    if not callable(found) or inspect.isclass(found):
        raise ConfigError(
            f"agent {reference!r} is a {type(found).__name__}: it must be a function of a task, best decorated with "
            "agl_streams.rollout"
        )
    try:
        return rollout(cast("Callable[..., Any]", found))
    except InvalidRequest as error:
        raise ConfigError(f"agent {reference!r}: {error}") from error


def _import(reference: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(
            f"agent {reference!r}: importing {module_name!r} failed with {type(error).__name__}: {error}"
        ) from error
