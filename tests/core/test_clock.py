"""The clock: units agree, and the monotonic one never steps back."""

from __future__ import annotations

from agl_streams import clock


def test_seconds_and_microseconds_tell_the_same_time() -> None:
    """A time in microseconds lies between two readings in seconds."""
    before = clock.now_s()
    between = clock.now_us()
    after = clock.now_s()
    # Seconds as a float resolve to a fraction of a microsecond today, so one of slack on each side is enough.
    assert before * 1e6 - 1 <= between <= after * 1e6 + 1


def test_the_monotonic_clock_never_steps_back() -> None:
    """Readings in a row never fall."""
    readings = [clock.monotonic_s() for _ in range(1_000)]
    assert readings == sorted(readings)


async def test_a_rest_lasts_at_least_as_long_as_asked() -> None:
    """The task goes on after the time given, and a negative time only yields."""
    start = clock.monotonic_s()
    await clock.sleep_s(0.01)
    assert clock.monotonic_s() - start >= 0.009
    await clock.sleep_s(-1)


def test_blocking_accepts_a_deadline_that_has_passed() -> None:
    """Blocking for what is left of a deadline that has passed returns at once instead of failing."""
    clock.block_s(-1)
    clock.block_s(0)
