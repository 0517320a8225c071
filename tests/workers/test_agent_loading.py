"""``MODULE:AGENT`` names an agent, or the error says why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agl_streams.agent import Agent
from agl_streams.errors import ConfigError
from agl_workers.agent_loading import load_agent
from tests.workers import agents

AGENTS = "tests.workers.agents"


def test_a_decorated_function_is_an_agent() -> None:
    """What is decorated is taken as it is."""
    assert load_agent(f"{AGENTS}:wait_for_file") is agents.wait_for_file


def test_a_plain_function_becomes_an_agent() -> None:
    """A function that nobody has decorated is an agent too."""
    agent = load_agent(f"{AGENTS}:plain")
    assert isinstance(agent, Agent)
    assert agent("1.5") == 1.5


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        (AGENTS, "give MODULE:AGENT"),
        (f"{AGENTS}:", "give MODULE:AGENT"),
        (":solve", "give MODULE:AGENT"),
        ("no_such_module:solve", "importing 'no_such_module' failed with ModuleNotFoundError"),
        (f"{AGENTS}:missing", "has no attribute 'missing'"),
        (f"{AGENTS}:plain.missing", "has no attribute 'missing'"),
        (f"{AGENTS}:not_an_agent", "is a int: it must be a function"),
        (f"{AGENTS}:NotAnAgent", "is a type: it must be a function"),
        (f"{AGENTS}:yielding", "is a generator"),
    ],
)
def test_what_is_no_agent_is_refused(reference: str, complaint: str) -> None:
    """Each way of naming no agent is a ConfigError that names it and says what is wrong."""
    with pytest.raises(ConfigError) as caught:
        load_agent(reference)
    assert repr(reference) in str(caught.value)
    assert complaint in str(caught.value)


def test_an_agent_that_fails_to_import_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the agent's module is told as the reason, with its type and message."""
    (tmp_path / "broken_agent.py").write_text("raise RuntimeError('no GPU here')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ConfigError, match="importing 'broken_agent' failed with RuntimeError: no GPU here"):
        load_agent("broken_agent:solve")
