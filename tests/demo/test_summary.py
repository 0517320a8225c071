"""The closing numbers: the fields for scripts, and which promise is broken by what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agl_streams.demo.kill import Killing, Recovery
from agl_streams.demo.summary import JSON_FIELDS, Summary
from agl_streams.models import Attempt
from agl_streams.semconv import REASON

LEASE_S = 3.0
GOOD = Summary(
    first_reward=0.26,
    last_reward=0.98,
    rollouts=100,
    attempts=100,
    spans=300,
    model_calls=200,
    tokens=26_000,
    complete_captures=200,
    incomplete_captures=0,
    triplets=200,
    retries=0,
    lost=0,
    doubled=0,
    seconds=12.5,
)


def attempt(number: int, worker_id: str, status: Any, reason: str | None = None) -> Attempt:
    """An attempt of a rollout."""
    return Attempt(
        rollout_id="batch-001-000",
        attempt_id=f"at-{number}",
        sequence_id=number,
        start_time=1.0,
        status=status,
        worker_id=worker_id,
        metadata={REASON: reason} if reason else None,
    )


LOST = attempt(1, "runner-1", "unresponsive", "worker_lost")
REPEATED = attempt(2, "runner-2", "succeeded")
RECOVERED = Recovery(LOST, REPEATED, 3.1)


def after_a_kill(*recoveries: Recovery) -> Summary:
    """A good run in which a runner was killed."""
    killing = Killing("runner-1", ("batch-001-000",), 1.0)
    return replace(GOOD, killing=killing, recoveries=recoveries)


def test_a_good_run_breaks_no_promise() -> None:
    """Good numbers are kept promises, with and without a kill."""
    assert GOOD.broken_promises(LEASE_S) == []
    assert after_a_kill(RECOVERED).broken_promises(LEASE_S) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"first_reward": 0.51}, "the reward of the first batch, 0.51, is above 0.5"),
        ({"last_reward": 0.89}, "the reward of the last batch, 0.89, is below 0.9"),
        ({"lost": 2}, "2 rollouts are lost"),
        ({"doubled": 1}, "1 rollouts finished twice"),
        ({"incomplete_captures": 3}, "3 captures are incomplete"),
        ({"triplets": 199}, "the learner saw 199 of 200 complete captures"),
    ],
)
def test_a_bad_number_breaks_one_promise(change: dict[str, Any], told: str) -> None:
    """Each number that is not as it should be is named."""
    assert replace(GOOD, **change).broken_promises(LEASE_S) == [told]


@pytest.mark.parametrize(
    ("recovery", "told"),
    [
        (Recovery(LOST, REPEATED, 5.1), "recovery took 5.1 s, more than the lease and 2 s"),
        (Recovery(LOST, None, 0.0), "batch-001-000: "),
        (Recovery(LOST, attempt(2, "runner-1", "succeeded"), 3.0), "batch-001-000: "),
        (Recovery(LOST, attempt(2, "runner-2", "failed"), 3.0), "batch-001-000: "),
        (Recovery(attempt(1, "runner-1", "succeeded"), REPEATED, 3.0), "batch-001-000: "),
    ],
)
def test_a_recovery_has_to_be_timely_and_by_another(recovery: Recovery, told: str) -> None:
    """An attempt that was not noticed as lost, not repeated by another runner, or late, breaks a promise."""
    (line,) = after_a_kill(recovery).broken_promises(LEASE_S)
    assert line.startswith(told)


def test_scripts_get_the_documented_fields() -> None:
    """The JSON object has these fields in this order, and three more after a kill."""
    assert tuple(GOOD.as_json()) == JSON_FIELDS
    more = after_a_kill(RECOVERED).as_json()
    assert {name: more[name] for name in more if name not in JSON_FIELDS} == {
        "killed_runner": "runner-1",
        "killed_rollouts": 1,
        "recovered_seconds": 3.1,
    }
