"""What the rules of the machine draw: mostly what matters, now and then what hardly happens."""

from __future__ import annotations

from hypothesis import strategies as st

from agl_streams.models import RolloutConfig
from tests.support.faulty import Fault

INDEX = st.integers(0, 30)
STORE = st.integers(0, 1)
CONFIG = st.builds(
    RolloutConfig,
    timeout_seconds=st.sampled_from([None, None, 8.0, 50.0]),
    unresponsive_seconds=st.sampled_from([None, None, 5.0, 20.0]),
    max_attempts=st.integers(1, 3),
    retry_condition=st.lists(st.sampled_from(["failed", "timeout", "unresponsive"]), unique=True),
)
FAULT = st.sampled_from(
    [Fault()] * 5
    + [Fault("repeat")] * 3
    + [Fault("crash_before"), Fault("crash_after"), Fault("crash_before", 2), Fault("crash_after", 2)]
)
WORKER = st.sampled_from([None, "w1", "w2", "w/3 ü"])
CONSUMER = st.sampled_from(["w1", "w2"])
LEASE = st.sampled_from([None, 3.0, 30.0])
METADATA = st.sampled_from([{}, {"a": 1}, {"b": [None, "ü"]}])
REASON = st.sampled_from([None, "said so"])
JUMPS_S = st.sampled_from([0.000001, 1.0, 3.0, 3.000001, 8.0, 9.0, 31.0, 100.0, -4.0])
SPANS_OF_TIME_S = st.sampled_from([2.0, 5.000001, 9.0, 22.0, 31.0, 52.0])
WATCH_EVERY_S = 9.0  # less than a third of the lease: the watchdog is never away
