"""The machine that makes histories: what may happen to a store, one rule each, on the real one and on the model."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from agl_streams.keys import escape
from agl_streams.models import LLM, AttemptStatus, EnqueueRolloutRequest, RolloutConfig, RolloutStatus
from agl_streams.store.base import us
from agl_streams.values import new_attempt_id
from tests.properties.players import Players
from tests.properties.strategies import (
    CONFIG,
    CONSUMER,
    FAULT,
    INDEX,
    JUMPS_S,
    LEASE,
    METADATA,
    REASON,
    SPANS_OF_TIME_S,
    STORE,
    WATCH_EVERY_S,
    WORKER,
)
from tests.properties.world import NEVER_MS
from tests.support.faulty import Fault
from tests.support.model_rows import US_PER_S, ModelAttempt
from tests.support.spans import model_call, reward


class StoreMachine(Players):
    """One history."""

    # --- work begins

    @initialize(config=CONFIG, lease=LEASE, worker=WORKER, handed=st.booleans())
    def begin_with_some(self, config: RolloutConfig, lease: float | None, worker: str | None, handed: bool) -> None:
        """There is work from the start, one rollout of it begun, and perhaps one handed to a reader."""
        self.expire(0, Fault(), begin_late=False)
        self._enqueue(0, Fault(), ["r0", "r1", "r2"], config=config, metadata={}, mode=None, resources_id=None)
        self.dequeue(0, Fault(), worker, lease, 1)
        if handed:
            self.hand_over("w1", 1)

    @rule(
        store=STORE,
        fault=FAULT,
        count=st.integers(1, 3),
        config=st.none() | CONFIG,
        metadata=METADATA,
        mode=st.sampled_from([None, "train"]),
        resources_id=st.sampled_from([None, "rs-given"]),
    )
    def enqueue(
        self,
        store: int,
        fault: Fault,
        count: int,
        config: RolloutConfig | None,
        metadata: dict[str, Any],
        mode: Any,
        resources_id: str | None,
    ) -> None:
        """New rollouts, in one call."""
        first = len(self.model.rollouts)
        ids = [f"r{number}" for number in range(first, first + count)]
        self._enqueue(store, fault, ids, config=config, metadata=metadata, mode=mode, resources_id=resources_id)

    @precondition(lambda self: self.model.rollouts)
    @rule(store=STORE, fault=FAULT, index=INDEX)
    def enqueue_known_id(self, store: int, fault: Fault, index: int) -> None:
        """An id that exists, in one call with a new one given twice."""
        new = f"r{len(self.model.rollouts)}"
        ids = [self._rollout(index).rollout_id, new, new]
        self._enqueue(store, fault, ids, config=None, metadata={"other": True}, mode="val", resources_id=None)

    def _enqueue(self, store: int, fault: Fault, ids: list[str], **given: Any) -> None:
        requests = [EnqueueRolloutRequest(input={"of": one}, rollout_id=one, **given) for one in ids]
        answers, done, _ = self.world.call(store, fault, lambda s: s.enqueue_many_rollouts(requests))
        if not done:
            return
        fields = {
            **given,
            "resources_id": given["resources_id"] or self.model.latest_resources(),
            "config": given["config"] or RolloutConfig(),
        }
        expected = [self.model.enqueue(one, {"of": one}, **fields).public() for one in ids]
        if answers is not None:
            assert [answer.rollout_id for answer in answers] == [one.rollout_id for one in expected]
            assert [answer.status for answer in answers] == [one.status for one in expected]

    @rule(store=STORE, fault=FAULT, worker=WORKER, lease=LEASE, limit=st.integers(0, 3))
    def dequeue(self, store: int, fault: Fault, worker: str | None, lease: float | None, limit: int) -> None:
        """Take without blocking."""
        found, done, crashed = self.world.call(
            store,
            fault,
            lambda s: s.dequeue_many_rollouts(limit=limit, worker_id=worker, lease_seconds=lease),
        )
        if not done:
            return
        ids = [self.world.newest_attempt(entry.rollout_id) for entry in self.model.waiting()[:limit]]
        wanted = [*ids, *("no more",) * (limit - len(ids))]
        claimed = self.model.claim(wanted, worker=worker, lease=_us(lease))
        if not crashed:
            self._same_rollouts(found, claimed)

    @rule(store=STORE, fault=FAULT, worker=WORKER, lease=LEASE, config=st.none() | CONFIG)
    def start_rollout(
        self, store: int, fault: Fault, worker: str | None, lease: float | None, config: RolloutConfig | None
    ) -> None:
        """A rollout outside the queue."""
        _, done, _ = self.world.call(
            store,
            fault,
            lambda s: s.start_rollout("started", config=config, worker_id=worker, lease_seconds=lease),
        )
        if not done:
            return
        new = [one.rollout_id for one in self.world.rollouts() if one.rollout_id not in self.model.rollouts]
        assert len(new) == 1
        self.model.start_rollout(
            new[0],
            self.world.newest_attempt(new[0]),
            "started",
            worker=worker,
            lease=_us(lease),
            mode=None,
            resources_id=self.model.latest_resources(),
            config=config or RolloutConfig(),
            metadata={},
        )

    @precondition(lambda self: self.model.rollouts)
    @rule(store=STORE, fault=FAULT, index=INDEX, worker=WORKER, lease=LEASE)
    def start_attempt(self, store: int, fault: Fault, index: int, worker: str | None, lease: float | None) -> None:
        """One more attempt of any rollout."""
        rollout_id = self._rollout(index).rollout_id
        _, done, _ = self.world.call(store, fault, lambda s: s.start_attempt(rollout_id, worker, lease_seconds=lease))
        if done:
            new = self.world.newest_attempt(rollout_id)
            self.model.start_attempt(rollout_id, new, worker=worker, lease=_us(lease))

    # --- readers of the consumer group

    @rule(consumer=CONSUMER, count=st.integers(1, 2))
    def hand_over(self, consumer: str, count: int) -> None:
        """A blocked reader is given entries; whether it begins them is another matter."""
        reply = self.world.raw.execute(
            "XREADGROUP", "GROUP", "runners", consumer, "COUNT", count, "STREAMS", self.world.keys.tasks, ">"
        )
        ids = [entry.decode() for entry, _ in reply[0][1]] if reply else []
        entries = self.model.hand_over(consumer, count)
        assert len(ids) == len(entries)
        self.handed += zip(ids, entries, strict=True)

    @precondition(lambda self: self.handed)
    @rule(store=STORE, fault=FAULT, index=INDEX, worker=CONSUMER, lease=st.sampled_from([3.0, 30.0]))
    def begin(self, store: int, fault: Fault, index: int, worker: str, lease: float) -> None:
        """A reader begins what it was handed, now or long after; a second time with the same attempt id."""
        place = index % len(self.handed)
        entry_id, entry = self.handed[place]
        attempt_id = self.begun.setdefault(place, new_attempt_id())
        views, done, _ = self.world.call(
            store,
            fault,
            lambda s: s.functions(0).begin([(entry_id, entry.rollout_id, attempt_id)], worker, us(lease)),
        )
        if done:
            begun = self.model.begin(entry, attempt_id, worker=worker, lease=round(lease * US_PER_S))
            assert views is None or (views[0] is not None) == begun

    @precondition(lambda self: self.handed)
    @rule(store=STORE, fault=FAULT, index=INDEX, stops=st.none() | CONSUMER)
    def give_back(self, store: int, fault: Fault, index: int, stops: str | None) -> None:
        """A reader gives back an entry that it was handed, or stops and gives back all."""
        entry_id, entry = self.handed[index % len(self.handed)]
        if stops is None:
            _, done, _ = self.world.call(store, fault, lambda s: s.functions(0).release([(entry_id, entry.rollout_id)]))
        else:
            _, done, _ = self.world.call(store, fault, lambda s: s.functions(0).leave(stops))
        if done and stops is None:
            self.model.release(entry)
        elif done and stops is not None:
            self.model.leave(stops)

    # --- what happens to attempts

    @precondition(lambda self: self._attempts())
    @rule(
        store=STORE,
        fault=FAULT,
        index=INDEX,
        other=INDEX,
        count=st.integers(1, 3),
        assign=st.booleans(),
        known=st.booleans(),
        number=st.integers(0, 12),
    )
    def add_spans(
        self, store: int, fault: Fault, index: int, other: int, count: int, assign: bool, known: bool, number: int
    ) -> None:
        """Spans of one or two attempts in one call: new ones, some that are there, one twice."""
        attempts = [self._attempt(index), self._attempt(other)]
        spans = [
            _span(attempts[turn % 2], number + turn, f"{len(attempts[turn % 2].spans)}-{turn}", turn)
            for turn in range(count)
        ]
        if known:
            spans += [_span(attempt, number, one, 0) for attempt in attempts for one in list(attempt.spans)[:1]]
            spans.append(spans[0])
        stored, done, _ = self.world.call(store, fault, lambda s: s.add_many_spans(spans, assign_sequence=assign))
        groups = list(dict.fromkeys((span.rollout_id, span.attempt_id) for span in spans))
        expected: list[tuple[str, int]] = []
        for rollout_id, attempt_id in groups[:done]:
            group = [span for span in spans if (span.rollout_id, span.attempt_id) == (rollout_id, attempt_id)]
            new = self.model.add_spans(rollout_id, attempt_id, group, assign=assign)
            expected += [(span.span_id, span.sequence_id) for span in new]
        if stored is not None:
            assert sorted((span.span_id, span.sequence_id) for span in stored) == sorted(expected)

    @precondition(lambda self: self._attempts())
    @rule(
        store=STORE,
        fault=FAULT,
        index=INDEX,
        latest=st.booleans(),
        status=st.sampled_from(
            [None, "preparing", "running", "succeeded", "succeeded", "failed", "failed", "timeout", "unresponsive"]
        ),
        worker=WORKER,
        heartbeat=st.sampled_from([None, None, None, -3, 2, 40]),
        metadata=st.none() | METADATA,
        reason=REASON,
    )
    def update_attempt(
        self,
        store: int,
        fault: Fault,
        index: int,
        latest: bool,
        status: AttemptStatus | None,
        worker: str | None,
        heartbeat: int | None,
        metadata: dict[str, Any] | None,
        reason: str | None,
    ) -> None:
        """A report on any attempt, by its id or as the latest."""
        attempt = self._attempt(index)
        if latest:
            attempt = cast("ModelAttempt", self.model.rollouts[attempt.rollout_id].latest)
        heartbeat = None if heartbeat is None else self.model.now + heartbeat * US_PER_S
        fields: dict[str, Any] = {"status": status, "worker_id": worker, "metadata": metadata, "reason": reason}
        fields["last_heartbeat_time"] = None if heartbeat is None else heartbeat / US_PER_S
        said = {name: value for name, value in fields.items() if value is not None}
        name = "latest" if latest else attempt.attempt_id
        answer, done, _ = self.world.call(store, fault, lambda s: s.update_attempt(attempt.rollout_id, name, **said))
        if not done:
            return
        self.model.update_attempt(
            attempt, status=status, worker=worker, heartbeat=heartbeat, metadata=metadata, reason=reason
        )
        assert answer is None or answer == attempt.public()

    @precondition(lambda self: self._attempts())
    @rule(store=STORE, fault=FAULT, index=INDEX, lease=st.sampled_from([3.0, 30.0]))
    def renew(self, store: int, fault: Fault, index: int, lease: float) -> None:
        """A runner renews its lease."""
        attempt = self._attempt(index)
        word, done, _ = self.world.call(
            store, fault, lambda s: s.renew_attempt(attempt.rollout_id, attempt.attempt_id, lease_seconds=lease)
        )
        if done:
            expected = self.model.renew(attempt.rollout_id, attempt.attempt_id, round(lease * US_PER_S))
            assert word in (None, expected)

    @rule(store=STORE, fault=FAULT, worker=st.sampled_from(["w1", "w2", "w9"]), stats=st.none() | METADATA)
    def heartbeat(self, store: int, fault: Fault, worker: str, stats: dict[str, Any] | None) -> None:
        """A worker says that it lives."""
        given = {} if stats is None else {"heartbeat_stats": stats}
        _, done, _ = self.world.call(store, fault, lambda s: s.update_worker(worker, **given))
        if done:
            self.model.heartbeat(worker, stats)

    @rule(store=STORE, fault=FAULT, idle=st.sampled_from([8.0, 60.0]))
    def retire_workers(self, store: int, fault: Fault, idle: float) -> None:
        """Whoever was idle for that long is forgotten; one that never was is asked for as well."""
        names = [escape(name) for name in (*self.model.workers, "never-was")]
        found, done, _ = self.world.call(store, fault, lambda s: s.functions(0).retire_workers(names, us(idle)))
        if done:
            gone = self.model.retire(round(idle * US_PER_S))
            assert found is None or fault.kind == "repeat" or found == [escape(name) for name in gone]

    # --- what happens to rollouts

    @precondition(lambda self: self.model.rollouts)
    @rule(
        store=STORE,
        fault=FAULT,
        index=INDEX,
        status=st.sampled_from(
            [None, None, "queuing", "requeuing", "preparing", "running", "succeeded", "failed", "cancelled"]
        ),
        fields=st.fixed_dictionaries(
            {},
            optional={
                "mode": st.sampled_from([None, "test"]),
                "resources_id": st.sampled_from([None, "rs-given"]),
                "config": CONFIG,
                "metadata": st.none() | METADATA,
                "input": st.sampled_from([None, [1, 2]]),
            },
        ),
    )
    def update_rollout(
        self, store: int, fault: Fault, index: int, status: RolloutStatus | None, fields: dict[str, Any]
    ) -> None:
        """An operator replaces fields, or the status."""
        rollout = self._rollout(index)
        said: dict[str, Any] = fields if status is None else {**fields, "status": status}
        _, done, _ = self.world.call(store, fault, lambda s: s.update_rollout(rollout.rollout_id, **said))
        if done:
            self.model.update_rollout(rollout, status=status, **fields)

    @precondition(lambda self: self.model.rollouts)
    @rule(store=STORE, fault=FAULT, index=INDEX)
    def cancel(self, store: int, fault: Fault, index: int) -> None:
        """An operator cancels."""
        rollout = self._rollout(index)
        _, done, _ = self.world.call(store, fault, lambda s: s.cancel_rollout(rollout.rollout_id, "not wanted"))
        if done:
            self.model.cancel(rollout, "not wanted")

    @precondition(lambda self: self.model.dead)
    @rule(store=STORE, fault=FAULT, index=INDEX, again=st.booleans())
    def deal_with_dead(self, store: int, fault: Fault, index: int, again: bool) -> None:
        """An operator puts a rollout that was given up on the queue again, or drops it."""
        rollout = self.model.rollouts[self.model.dead[index % len(self.model.dead)][0]]
        name = "requeue_dead_letter" if again else "drop_dead_letter"
        _, done, _ = self.world.call(store, fault, lambda s: getattr(s, name)(rollout.rollout_id))
        if done:
            (self.model.requeue_dead if again else self.model.drop_dead)(rollout)

    @rule(store=STORE, fault=FAULT, resources_id=st.sampled_from(["rs-1", "rs:2/ü"]), model=st.sampled_from("ab"))
    def update_resources(self, store: int, fault: Fault, resources_id: str, model: str) -> None:
        """A new version of what rollouts run against."""
        resources: Any = {"llm": LLM(endpoint="http://h/v1", model=model)}
        answer, done, _ = self.world.call(store, fault, lambda s: s.update_resources(resources_id, resources))
        if done:
            expected = self.model.update_resources(resources_id, resources)
            assert answer is None or answer == expected

    # --- what time does

    @rule(step=JUMPS_S, look=st.booleans(), begin_late=st.booleans())
    def time_jumps(self, step: float, look: bool, begin_late: bool) -> None:
        """The server's clock moves, sometimes back; the watchdog may look then, perhaps after an absence."""
        self.model.clock += round(step * US_PER_S)
        if look:
            self.expire(0, Fault(), begin_late)

    @rule(store=STORE, seconds=SPANS_OF_TIME_S, begin_late=st.booleans())
    def time_passes(self, store: int, seconds: float, begin_late: bool) -> None:
        """Time passes and the watchdog watches, so that silence proves something."""
        end = self.model.clock + round(seconds * US_PER_S)
        while self.model.clock < end:
            self.model.clock = min(end, self.model.clock + round(WATCH_EVERY_S * US_PER_S))
            self.expire(store, Fault(), begin_late)

    @rule(store=STORE, fault=FAULT, begin_late=st.booleans())
    def expire(self, store: int, fault: Fault, begin_late: bool) -> None:
        """The watchdog looks."""
        order = self.world.deadlines()
        lease, begin_ms = str(self.model.default_lease), 0 if begin_late else NEVER_MS
        deliveries = self.model.max_deliveries
        result, done, _ = self.world.call(store, fault, lambda s: s.functions(0).expire(lease, begin_ms, deliveries))
        if not done:
            return
        ended, put_back = self.model.expire(order, begin_late=begin_late)
        if result is not None and fault.kind == "none":
            assert (result.ended, result.redelivered) == (ended, put_back)

    @rule(store=STORE, fault=FAULT, whole=st.booleans())
    def fold(self, store: int, fault: Fault, whole: bool) -> None:
        """The aggregator adds up, a little or all; then the sums are those of the spans."""
        self.world.call(store, fault, lambda s: s.settle() if whole else s.functions(0).fold(3))
        if whole and fault.kind == "none":
            self.world.check_sums()

    @precondition(lambda self: self.world.voidable())
    @rule(store=STORE, index=INDEX)
    def late_duplicate(self, store: int, index: int) -> None:
        """A call that was carried out reaches the server a second time, after others."""
        calls = self.world.voidable()
        self.world.send_again(store, calls[-1 - index % len(calls)])

    @rule(store=STORE, index=INDEX, indexes=st.lists(INDEX, max_size=4), what=st.sampled_from(["ask", "wait", "miss"]))
    def look(self, store: int, index: int, indexes: list[int], what: str) -> None:
        """Numbers are asked for, finished ones waited for, unknown ones missed."""
        if what == "ask" and self._attempts():
            self._ask_for_a_number(store, index)
        elif what == "wait":
            self._wait(store, indexes)
        elif what == "miss":
            self._miss(store, index)

    @invariant()
    def both_show_the_same(self) -> None:
        """After each step."""
        try:
            self.world.check()
        except BaseException:
            self.failed = True
            raise

    def teardown(self) -> None:
        """A history that held is also the same when built again from its log."""
        self.world.close(check_rebuild=not self.failed)


def _span(attempt: ModelAttempt, number: int, span_id: str, turn: int) -> Any:
    ids: dict[str, Any] = {"rollout_id": attempt.rollout_id, "attempt_id": attempt.attempt_id, "span_id": span_id}
    return reward(number, 0.25 * number, **ids) if turn == 1 else model_call(number, **ids)


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * US_PER_S)
