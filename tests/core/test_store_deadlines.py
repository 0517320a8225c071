"""What time does to attempts: timeouts, silence, leases, and who gets the benefit of the doubt."""

from __future__ import annotations

import pytest

from agl_streams.models import AttemptedRollout, RolloutConfig
from agl_streams.semconv import REASON
from agl_streams.store import StreamStore
from tests.support.spans import reward
from tests.support.timeline import Timeline

JUST = 0.000001  # the smallest time there is
HOUR_S = 3600.0


async def begin(
    time: Timeline,
    *,
    lease: float | None = None,
    timeout_seconds: float | None = None,
    unresponsive_seconds: float | None = None,
) -> AttemptedRollout:
    """Rollout ``r`` with an attempt that has just begun."""
    config = RolloutConfig(timeout_seconds=timeout_seconds, unresponsive_seconds=unresponsive_seconds)
    await time.store.enqueue_rollout("x", config=config, rollout_id="r")
    return await time.take(worker_id="w", lease_seconds=lease)


async def add_span(store: StreamStore, attempted: AttemptedRollout) -> None:
    """One more span of an attempt."""
    ids = (attempted.rollout_id, attempted.attempt.attempt_id)
    await store.add_span(reward(0, 1.0, rollout_id=ids[0], attempt_id=ids[1]), assign_sequence=True)


async def test_a_timeout_is_strictly_after_its_limit(time: Timeline) -> None:
    """At exactly `timeout_seconds` from the attempt's start nothing happens, a microsecond later it ends."""
    await begin(time, timeout_seconds=100.0)
    await time.passes(100)
    assert await time.statuses("r") == ("preparing", "preparing")
    await time.passes(JUST)
    assert await time.statuses("r") == ("failed", "timeout")
    attempt = await time.attempt("r")
    assert (attempt.end_time, attempt.metadata) == (time.now, {REASON: "timeout"})


async def test_silence_is_strictly_after_its_limit(time: Timeline) -> None:
    """At exactly `unresponsive_seconds` from the start nothing happens, a microsecond later it does; with no end."""
    await begin(time, unresponsive_seconds=40.0)
    await time.passes(40)
    assert await time.statuses("r") == ("preparing", "preparing")
    await time.passes(JUST)
    assert await time.statuses("r") == ("failed", "unresponsive")
    assert (await time.attempt("r")).end_time is None


async def test_silence_counts_from_the_last_heartbeat(store: StreamStore, time: Timeline) -> None:
    """A span is a heartbeat; the timeout still counts from the start."""
    attempted = await begin(time, unresponsive_seconds=40.0, timeout_seconds=70.0)
    await time.passes(35)
    await add_span(store, attempted)
    assert (await time.attempt("r")).last_heartbeat_time == time.now
    await time.passes(35)
    assert await time.statuses("r") == ("running", "running")
    await time.passes(JUST)
    assert await time.statuses("r") == ("failed", "timeout")


async def test_timeout_beats_silence(time: Timeline) -> None:
    """When both hold by the time that the watchdog looks, it is a timeout, though the silence came first."""
    await begin(time, timeout_seconds=100.0, unresponsive_seconds=40.0)
    time.jumps(100 + JUST)
    await time.look()
    assert await time.statuses("r") == ("failed", "timeout")


async def test_timeout_beats_a_lost_lease(time: Timeline) -> None:
    """It is not the infrastructure's fault that the attempt took too long."""
    await begin(time, lease=9.0, timeout_seconds=10.0)
    time.jumps(10 + JUST)
    await time.look()
    assert await time.statuses("r") == ("failed", "timeout")


async def test_no_limits_and_no_lease_means_for_ever(time: Timeline) -> None:
    """Nothing ends an attempt that nothing limits."""
    await begin(time)
    await time.passes(1000)
    time.jumps(10_000_000)
    await time.look()
    assert await time.statuses("r") == ("preparing", "preparing")


async def test_the_lease_runs_out_strictly_after_its_length(time: Timeline) -> None:
    """A lease of 30 s covers 30 s."""
    await begin(time, lease=30.0)
    await time.passes(30)
    assert await time.statuses("r") == ("preparing", "preparing")
    await time.passes(JUST)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


@pytest.mark.parametrize("how", ["renewal", "span", "worker's heartbeat"])
async def test_a_sign_of_life_renews_the_lease(store: StreamStore, time: Timeline, how: str) -> None:
    """Renewals, spans and the worker's heartbeats each give a full lease from their moment."""
    attempted = await begin(time, lease=30.0)
    for _ in range(3):
        await time.passes(25)
        if how == "renewal":
            assert await store.renew_attempt("r", attempted.attempt.attempt_id) == "renewed"
        elif how == "span":
            await add_span(store, attempted)
        else:
            await store.update_worker("w")
    await time.passes(30)
    assert (await time.rollout("r")).status in ("preparing", "running")
    await time.passes(JUST)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_a_shorter_lease_holds_from_its_renewal(store: StreamStore, time: Timeline) -> None:
    """A runner that asks for less is noticed sooner."""
    attempted = await begin(time, lease=30.0)
    assert await store.renew_attempt("r", attempted.attempt.attempt_id, lease_seconds=5.0) == "renewed"
    await time.passes(5 + JUST)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_a_claim_without_lease_gets_one_from_its_workers_first_heartbeat(
    store: StreamStore, time: Timeline
) -> None:
    """A worker that beats is watched by the default lease; one that never did is not watched."""
    await begin(time)
    await time.passes(100)
    await store.update_worker("w")
    await time.passes(30)
    assert await time.statuses("r") == ("preparing", "preparing")
    await time.passes(JUST)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_spans_renew_a_lease_that_came_with_a_heartbeat(store: StreamStore, time: Timeline) -> None:
    """Once an attempt is watched, each sign of life counts."""
    attempted = await begin(time)
    await store.update_worker("w")
    for _ in range(3):
        await time.passes(25)
        await add_span(store, attempted)
    await time.passes(30)
    assert await time.statuses("r") == ("running", "running")
    await time.passes(JUST)
    assert await time.statuses("r") == ("requeuing", "unresponsive")


async def test_a_worker_keeps_only_the_attempt_that_it_shows(store: StreamStore, time: Timeline) -> None:
    """A claim whose answer was lost runs out, although its worker, busy with the next, goes on beating."""
    await begin(time, lease=30.0)
    await store.enqueue_rollout("y", rollout_id="next")
    await time.take(worker_id="w", lease_seconds=30.0)
    for _ in range(2):
        await time.passes(20)
        await store.update_worker("w")
    assert await time.statuses("r") == ("requeuing", "unresponsive")
    assert await time.statuses("next") == ("preparing", "preparing")


async def test_a_heartbeat_set_in_the_future_extends_no_lease(store: StreamStore, time: Timeline) -> None:
    """What a user says of the future proves nothing about the runner."""
    await begin(time, lease=30.0)
    await store.update_attempt("r", "latest", last_heartbeat_time=time.now + 1000)
    await time.passes(31)
    assert (await time.attempt("r")).metadata == {REASON: "worker_lost"}


async def test_shrinking_limits_take_effect_at_once(store: StreamStore, time: Timeline) -> None:
    """New limits hold for the attempt that is running."""
    await begin(time, timeout_seconds=1000.0)
    await store.update_rollout("r", config=RolloutConfig(timeout_seconds=20.0))
    await time.passes(20 + JUST)
    assert await time.statuses("r") == ("failed", "timeout")


async def test_widened_limits_take_effect_at_once(store: StreamStore, time: Timeline) -> None:
    """An attempt that has been given more time gets it; the old deadline does not end it."""
    await begin(time, timeout_seconds=20.0)
    await store.update_rollout("r", config=RolloutConfig(timeout_seconds=50.0))
    await time.passes(50)
    assert await time.statuses("r") == ("preparing", "preparing")


async def test_after_an_absence_silence_proves_nothing_for_a_lease(time: Timeline) -> None:
    """The watchdog was away: leases and silence are judged one full lease later, not at once."""
    await begin(time, lease=10.0, unresponsive_seconds=15.0)
    time.jumps(100)
    assert await time.look() == 0
    await time.passes(30)
    assert await time.statuses("r") == ("preparing", "preparing")
    await time.passes(JUST)
    assert (await time.attempt("r")).status == "unresponsive"


async def test_after_an_absence_a_timeout_is_still_a_timeout(time: Timeline) -> None:
    """How long an attempt has taken is known, whoever was away."""
    await begin(time, timeout_seconds=50.0)
    time.jumps(100)
    assert await time.look() == 1
    assert await time.statuses("r") == ("failed", "timeout")


async def test_whoever_shows_up_after_an_absence_keeps_its_attempt(store: StreamStore, time: Timeline) -> None:
    """A server that was down for long costs no runner its work, if the runner is there."""
    attempted = await begin(time, lease=30.0)
    time.jumps(1000)
    await time.look()
    assert await store.renew_attempt("r", attempted.attempt.attempt_id) == "renewed"
    await time.passes(30)
    assert await time.statuses("r") == ("preparing", "preparing")


async def test_a_clock_that_steps_back_moves_no_time_back(store: StreamStore, time: Timeline) -> None:
    """Times of events never decrease."""
    attempted = await begin(time, timeout_seconds=50.0)
    time.jumps(-1000)
    await add_span(store, attempted)
    attempt = await time.attempt("r")
    assert attempt.last_heartbeat_time == attempt.start_time


async def test_three_seconds_and_three_hours_side_by_side(store: StreamStore, time: Timeline) -> None:
    """One queue, one worker that is killed: each rollout follows its own limit, and the lease finds the lost runner."""
    limits = {"short": 3.0, "long": 3 * HOUR_S}
    for rollout_id, limit in limits.items():
        config = RolloutConfig(timeout_seconds=limit, max_attempts=2, retry_condition=["timeout"])
        await store.enqueue_rollout("x", config=config, rollout_id=rollout_id)
        await time.take(worker_id="killed", lease_seconds=30.0)
    await time.passes(3 + JUST)
    assert await time.statuses("short") == ("requeuing", "timeout")
    assert await time.statuses("long") == ("preparing", "preparing")
    await time.passes(27)
    assert await time.statuses("long") == ("requeuing", "unresponsive")
    again = [await time.take(worker_id="other") for _ in limits]
    assert [(one.rollout_id, one.attempt.sequence_id) for one in again] == [("short", 2), ("long", 2)]
    await time.passes(3 + JUST)
    assert await time.statuses("short") == ("failed", "timeout")
    await time.passes(3 * HOUR_S - 3 - JUST)
    assert await time.statuses("long") == ("preparing", "preparing")
    await time.passes(JUST)
    assert await time.statuses("long") == ("requeuing", "timeout")
