"""Where our server may answer its client differently, value by value. Each reason is a row of docs/differences.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

ABSENT: Final = "absent"


@dataclass(frozen=True)
class Difference:
    """Values that differ in one way.

    Attributes:
        paths: which, as a regular expression: the label that the scenario gives, then keys and indexes.
        there, here: the values as Python writes them, ``ABSENT`` for none; regular expressions too.
        reason: words of the row of docs/differences.md that explains it.
    """

    paths: str
    there: str
    here: str
    reason: str

    def covers(self, path: str, there: str, here: str) -> bool:
        """Whether these two values at this path may differ as they do."""
        pairs = (self.paths, path), (self.there, there), (self.here, here)
        return there != here and all(re.fullmatch(pattern, text) for pattern, text in pairs)


NOW = "'now'"
TIMED_OUT = Difference(r".*end_time", "None", NOW, "Also with `timeout`.")
REASONS = [
    Difference(r".*metadata", r"None|\{\}", ABSENT, "shown as the metadata key"),
    Difference(r".*metadata\.agl_streams\.reason", ABSENT, r"'\w+'", "shown as the metadata key"),
]


def refused(paths: str) -> Difference:
    """What is the caller's mistake, and told so."""
    return Difference(paths, "'HTTP 500'", "'HTTP 404'", "An unknown rollout or attempt is a 500")


def reopened(paths: str) -> Difference:
    """A rollout that has ended and is open again."""
    return Difference(paths, NOW, "None", "`end_time` survives when a rollout is queued again.")


ALLOWED: Final[dict[str, list[Difference]]] = {
    "test_further_attempts_are_started": [
        refused("unknown.*"),
        reopened(r"(third|open again)\.end_time"),
    ],
    "test_only_the_given_fields_of_a_rollout_are_replaced": [refused("unknown.*")],
    "test_only_the_given_fields_of_an_attempt_are_replaced": [
        refused("unknown.*|latest of .*"),
        Difference(r".*\.worker_id", "''", "'v'", "An empty worker id is stored."),
    ],
    "test_a_rollout_follows_its_newest_attempt[failed]": [reopened(r"rollout stays\.end_time")],
    "test_a_rollout_follows_its_newest_attempt[succeeded]": [reopened(r"rollout stays\.end_time")],
    "test_a_rollout_follows_its_newest_attempt[unresponsive]": [reopened(r"rollout stays\.end_time")],
    "test_a_rollout_follows_its_newest_attempt[timeout]": [reopened(r"rollout stays\.end_time"), TIMED_OUT],
    "test_an_attempt_is_retried_as_the_rules_say[timeout]": [TIMED_OUT],
    "test_a_late_report_finds_the_rollout_finished": [
        Difference(r"rollout\.status", "'succeeded'", "'failed'", "overwrites a finished rollout"),
        Difference(r"cancelled\.status", "'succeeded'", "'cancelled'", "overwrites a finished rollout"),
    ],
    "test_an_overdue_attempt_ends": REASONS,
    "test_an_overdue_attempt_ends[timeout]": [TIMED_OUT],
    "test_an_overdue_attempt_ends[both]": [TIMED_OUT],
    "test_an_overdue_attempt_is_retried": [*REASONS, TIMED_OUT],
    "test_spans_of_one_number_come_in_the_order_of_their_times": [
        Difference("order", "'cba'", "'abc'", "Spans of one number"),
    ],
    "test_an_or_of_no_span_filter": [Difference("total", "0", "6", '`filter_logic="or"` without a filter')],
    "test_a_span_needs_its_attempt": [refused(".*")],
    "test_the_first_span_starts_its_attempt": [
        Difference(r"worker\.status", "'unknown'", "'busy'", "comes back"),
        Difference(r"worker\.current_(rollout|attempt)_id", "None", r"'(ro|at)#2'", "comes back"),
    ],
    "test_a_span_of_an_ended_attempt_is_kept": [TIMED_OUT],
    "test_a_span_of_the_sdk_is_stored": [refused("unknown")],
    "test_a_span_says_whose_it_is": [
        Difference(
            r"(of one|stored once)\.items\.[045]\.sequence_id", "[123]", "4[234]", "get it before those are stored"
        ),
    ],
    "test_values_that_the_span_model_lacks_are_kept": [
        Difference("status", "500", "200", "A map, an empty value"),
        Difference("stored", r"'\[\]'", re.escape(repr('[{"m.k": 1, "null": ""}, {}]')), "A map, an empty value"),
    ],
    "test_spans_of_unknown_attempts_are_refused": [
        Difference("status", "500", "200", "A span of an unknown attempt"),
    ],
}
"""By the name of the test; one of a single case has the name with its parameters."""
