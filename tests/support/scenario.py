"""One history that uses every writing command, step by step, the same each time it is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from agl_streams.models import LLM, EnqueueRolloutRequest, RolloutConfig
from agl_streams.store import StreamStore
from tests.support.spans import model_call, reward

BEGIN_US = 1_700_000_000_000_000
US_PER_S = 1_000_000
DAY_S = 24 * 3600
LEASE_US = "30000000"
NEVER_MS = 10**9
RETRIED = RolloutConfig(max_attempts=2, retry_condition=["failed", "timeout", "unresponsive"])
LIMITED = RolloutConfig(timeout_seconds=50.0, unresponsive_seconds=20.0)

Step = Callable[[StreamStore], Awaitable[Any]]


class Scenario:
    """Its steps, in order; each is one or a few calls of the store, and safe to repeat.

    The clock is the story's own, so that two tellings have equal times. After a fault on the way a step may find less
    than in the plain telling, and does with what it finds.
    """

    def __init__(self) -> None:
        self.now_us = BEGIN_US
        self._days = 0
        self._handed: list[tuple[str, str]] = []

    def use_clock(self, store: StreamStore) -> None:
        """Let the store's functions read the story's clock."""
        store.functions(0).clock_us = lambda: self.now_us

    def steps(self) -> list[Step]:
        """The story."""
        return [
            lambda s: s.update_resources("rs-1", {"llm": LLM(endpoint="http://h/v1", model="m")}, request_key="rs"),
            self._enqueue,
            lambda s: s.dequeue_rollout("w1", lease_seconds=30.0, request_key="first"),
            lambda s: self._spans(s, "r0", "latest"),
            lambda s: s.update_attempt("r0", "latest", metadata={"step": 1}),
            lambda s: s.update_attempt("r0", "latest", "failed", reason="wrong"),
            self._read,
            self._begin,
            lambda s: s.functions(0).release(self._handed[1:2]),
            lambda s: s.functions(0).leave("reader"),
            lambda s: s.update_worker("w1", {"cpu": 0.5}),
            lambda s: self._watch(s, 9),
            lambda s: s.dequeue_many_rollouts(limit=3, worker_id="w2", lease_seconds=30.0, request_key="three"),
            lambda s: self._watch(s, 9, 9, 9, 9),  # the leases run out
            lambda s: self._renew_newest(s, "r4"),
            self._read,
            lambda s: self._watch(s, 1, begin_ms=0),  # what was read is never begun
            lambda s: s.update_rollout("r4", metadata={"looked": "at"}, mode="test"),
            lambda s: s.update_rollout("r5", status="queuing"),
            lambda s: s.cancel_rollout("r6", "not wanted"),
            lambda s: s.start_rollout("by hand", config=LIMITED, worker_id="w3", request_key="hand"),
            lambda s: self._watch(s, 9, 9, 9),  # it is silent for too long
            lambda s: s.start_attempt("r0", "w3", request_key="again"),
            lambda s: self._spans(s, "r0", "latest"),
            lambda s: s.update_attempt("r0", "latest", "succeeded"),
            lambda s: s.dequeue_rollout("nobody", request_key="rest"),
            lambda s: self._watch(s, 9, 9, 9, 9, 9, 9, 9),
            lambda s: s.get_next_span_sequence_id("r0", "any"),
            lambda s: self._give_up(s, "lost-1", "lost-2"),
            lambda s: s.requeue_dead_letter("lost-1", request_key="requeue"),
            lambda s: s.drop_dead_letter("lost-2", request_key="drop"),
            lambda s: s.cancel_rollout("lost-1", "once was enough"),
            self._retire,
            lambda s: s.settle(),
        ]

    async def _enqueue(self, store: StreamStore) -> None:
        requests = [
            EnqueueRolloutRequest(input={"n": n}, config=RETRIED if n % 2 == 0 else None, rollout_id=f"r{n}")
            for n in range(8)
        ]
        await store.enqueue_many_rollouts(requests)

    async def _spans(self, store: StreamStore, rollout_id: str, attempt_id: str) -> None:
        attempt = await store.get_latest_attempt(rollout_id)
        if attempt is None:
            return
        ids: dict[str, Any] = {"rollout_id": rollout_id, "attempt_id": attempt.attempt_id}
        spans = [
            model_call(0, span_id="call", trace_id="t", start_time=10.0, end_time=11.5, **ids),
            reward(0, 0.5, span_id="reward", trace_id="t", **ids),
            model_call(0, span_id="call", trace_id="t", **ids),
        ]
        await store.add_many_spans(spans, assign_sequence=True, request_key=f"spans {attempt.sequence_id}")
        await store.add_span(reward(7, 0.75, span_id="late", trace_id="t", **ids))

    async def _read(self, store: StreamStore) -> None:
        """A reader is handed three entries; a repeat of the step finds what it holds."""
        tasks = store.functions(0).keys.tasks
        for position in ("0", ">"):
            reply = cast("Any", await store.connection.execute(
                "XREADGROUP", "GROUP", "runners", "reader", "COUNT", 3, "STREAMS", tasks, position
            ))  # fmt: skip
            if reply and reply[0][1]:
                self._handed = [(entry.decode(), fields[1].decode()) for entry, fields in reply[0][1]]
                return

    async def _begin(self, store: StreamStore) -> None:
        entry, rollout_id = self._handed[0]
        await store.functions(0).begin([(entry, rollout_id, "at-read")], "reader", LEASE_US)

    async def _renew_newest(self, store: StreamStore, rollout_id: str) -> None:
        attempt = await store.get_latest_attempt(rollout_id)
        if attempt is None:
            return
        await store.renew_attempt(rollout_id, attempt.attempt_id)

    async def _give_up(self, store: StreamStore, *rollout_ids: str) -> None:
        """Rollouts are handed over with all that wait and never begun, when no second delivery is allowed."""
        requests = [EnqueueRolloutRequest(input="poison", rollout_id=one) for one in rollout_ids]
        await store.enqueue_many_rollouts(requests)
        tasks = store.functions(0).keys.tasks
        await store.connection.execute("XREADGROUP", "GROUP", "runners", "reader", "STREAMS", tasks, ">")
        self.now_us += US_PER_S
        await store.functions(0).expire(LEASE_US, 0, 1)

    async def _retire(self, store: StreamStore) -> None:
        """A day goes by, and whoever holds nothing is forgotten; a repeat of the step finds nobody more."""
        if not self._days:
            self.now_us += DAY_S * US_PER_S
            self._days = 1
        await store.functions(0).retire_workers(["w1", "w2", "w3", "nobody", "reader"], str(DAY_S * US_PER_S))

    async def _watch(self, store: StreamStore, *steps_s: int, begin_ms: int = NEVER_MS) -> None:
        """Time passes while the watchdog watches."""
        for step_s in steps_s:
            self.now_us += step_s * US_PER_S
            await store.functions(0).expire(LEASE_US, begin_ms, store.settings.max_deliveries)
