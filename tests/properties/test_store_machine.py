"""Random histories on the real store and on a model in plain Python: after each step both show the same.

Two stores share a namespace. Their processes "crash" before or after any writing call, calls are repeated as after a
lost reply, stray duplicates come late, entries are handed to readers that never begin them, and the clock jumps.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from agl_streams.engine import Engine
from tests.properties.machine import StoreMachine


def run(url: str, *, examples: int, steps: int) -> None:
    """Make histories on the server at a URL."""
    machine = type("Machine", (StoreMachine,), {"url": url})
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(machine, settings=profile)


@pytest.mark.timeout(600)
def test_any_history_shows_what_the_model_shows(valkey: Engine) -> None:
    """Whatever happens, in whatever order, store and model show the same, and a rebuild has equal content."""
    run(valkey.url, examples=200, steps=50)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_long_history_shows_what_the_model_shows(valkey: Engine) -> None:
    """The same with many more and longer histories."""
    run(valkey.url, examples=1000, steps=100)
