"""What the rules of the machine play with: the store and its model, and how they choose and compare."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from agl_streams.errors import OUTCOMES, NotFound
from agl_streams.lifecycle import FINISHED
from agl_streams.store import StreamStore
from tests.properties.world import World
from tests.support.faulty import Fault
from tests.support.model_rows import Entry, ModelAttempt, ModelRollout
from tests.support.spans import reward


class Players(RuleBasedStateMachine):
    """A machine without rules."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.url)
        self.model = self.world.model
        self.handed: list[tuple[str, Entry]] = []  # (entry id, place) as readers were given them
        self.begun: dict[int, str] = {}  # place in `handed` -> the attempt that its reader names
        self.failed = False

    def _ask_for_a_number(self, store: int, index: int) -> None:
        """The next sequence number; and one with which a model call is admitted, if it is."""
        attempt = self._attempt(index)
        ids = (attempt.rollout_id, attempt.attempt_id)
        number, _, _ = self.world.call(store, Fault(), lambda s: s.get_next_span_sequence_id(*ids))
        assert number == self.model.next_sequence(ids[0])
        refused = self.model.may_call(attempt)
        if refused is None:
            number, _, _ = self.world.call(store, Fault(), lambda s: s.admit_call(*ids))
            assert number == self.model.next_sequence(ids[0])
        else:
            with pytest.raises(OUTCOMES[refused][0]):
                self.world.call(store, Fault(), lambda s: s.admit_call(*ids))

    def _wait(self, store: int, indexes: list[int]) -> None:
        """Who is finished now."""
        known = [self._rollout(index).rollout_id for index in indexes] if self.model.rollouts else []
        ids = ["never-was", *known]
        found, _, _ = self.world.call(store, Fault(), lambda s: s.wait_for_rollouts(rollout_ids=ids, timeout=0))
        self._same_rollouts(found, [one for one in known if self.model.rollouts[one].status in FINISHED])

    def _miss(self, store: int, index: int) -> None:
        """What does not exist is refused, and nothing changes."""
        rollout_id = next(iter(self.model.rollouts), "r-none") if index % 2 else "r-none"
        operations: list[Callable[[StreamStore], Awaitable[Any]]] = [
            lambda s: s.update_attempt(rollout_id, "at-none", "failed"),
            lambda s: s.add_span(reward(77, 1.0, rollout_id=rollout_id, attempt_id="at-none")),
            lambda s: s.start_attempt("r-none"),
            lambda s: s.update_rollout("r-none", status="failed"),
            lambda s: s.cancel_rollout("r-none", "x"),
        ]
        for operation in operations:
            with pytest.raises(NotFound):
                self.world.call(store, Fault(), operation)
        word, _, _ = self.world.call(store, Fault(), lambda s: s.renew_attempt(rollout_id, "at-none"))
        assert word == "not_found_attempt"

    def _rollout(self, index: int) -> ModelRollout:
        rollouts = list(self.model.rollouts.values())
        return rollouts[index % len(rollouts)]

    def _attempts(self) -> list[ModelAttempt]:
        return [attempt for rollout in self.model.rollouts.values() for attempt in rollout.attempts]

    def _attempt(self, index: int) -> ModelAttempt:
        """Mostly one that is worked on."""
        attempts = self._attempts()
        working = [attempt for attempt in attempts if attempt.open]
        chosen = working if working and index % 3 else attempts
        return chosen[-1 - index % len(chosen)]

    def _same_rollouts(self, found: Any, expected: list[str]) -> None:
        assert [rollout.rollout_id for rollout in found] == expected
        for rollout in found:
            assert rollout == self.model.rollouts[rollout.rollout_id].public()
