"""A model of the store in plain Python: what each call must do, by the rules of its semantics. It knows no Redis.

Times are integer microseconds. `lifecycle` has the pure rules; here they meet queue, leases, workers and waiting. One
shard. Where the rules leave an order open (which of several overdue attempts ends first), the caller says it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agl_streams import lifecycle
from agl_streams.errors import NotFound
from agl_streams.lifecycle import ATTEMPT_DATED, FINISHED, QUEUING, WORKER_LOST
from agl_streams.models import AttemptStatus, ResourcesUpdate, RolloutStatus, Span
from tests.support.model_rows import US_PER_S, Entry, ModelAttempt, ModelRollout, ModelWorker, Row


class Model:
    """The whole store.

    Attributes:
        clock: what the server's clock says; it may step back, `now` does not fall behind the last event.
        queue: who waits, oldest first.
        finished: (rollout, status) in order of completion. dead: (rollout, reason) of those given up.
        sequence: rollout -> highest span number handed out or seen.
    """

    def __init__(self, *, clock: int, lease: int, max_deliveries: int) -> None:
        """``lease`` is the default one: what a heartbeat gives, and the measure of an absence."""
        self.clock = clock
        self.default_lease = lease
        self.max_deliveries = max_deliveries
        self.rollouts: dict[str, ModelRollout] = {}
        self.queue: list[Entry] = []
        self.finished: list[tuple[str, RolloutStatus]] = []
        self.dead: list[tuple[str, str]] = []
        self.workers: dict[str, ModelWorker] = {}
        self.resources: dict[str, ResourcesUpdate] = {}
        self.sequence: dict[str, int] = {}
        self._last_event = 0
        self._looked: int | None = None
        self._grace = 0

    @property
    def now(self) -> int:
        """Time of whatever happens next."""
        return max(self.clock, self._last_event)

    # --- looking things up

    def rollout(self, rollout_id: str) -> ModelRollout:
        """A rollout, or NotFound."""
        if rollout_id not in self.rollouts:
            raise NotFound(rollout_id)
        return self.rollouts[rollout_id]

    def attempt(self, rollout_id: str, attempt_id: str) -> ModelAttempt:
        """An attempt by id or ``latest``, or NotFound."""
        rollout = self.rollout(rollout_id)
        if attempt_id == "latest" and rollout.latest:
            return rollout.latest
        found = [attempt for attempt in rollout.attempts if attempt.attempt_id == attempt_id]
        if not found:
            raise NotFound(attempt_id)
        return found[0]

    def latest_resources(self) -> str | None:
        """The bundle updated last."""
        return next(reversed(self.resources), None)

    def place(self, rollout_id: str) -> Entry | None:
        """The rollout's place in the queue."""
        return next((entry for entry in self.queue if entry.rollout_id == rollout_id), None)

    def watched(self, attempt: ModelAttempt) -> bool:
        """Whether the watchdog looks after an attempt: the newest one of a finished rollout is left to its runner."""
        rollout = self.rollouts[attempt.rollout_id]
        return attempt.open and not (rollout.status in FINISHED and attempt is rollout.latest)

    # --- work begins

    def enqueue(self, rollout_id: str, input: Any, **fields: Any) -> ModelRollout:
        """A rollout at the end of the queue; a known id gives the first one, unchanged."""
        if rollout_id not in self.rollouts:
            self._create(rollout_id, input, "queuing", **fields)
            self.queue.append(Entry(rollout_id))
        return self.rollouts[rollout_id]

    def start_rollout(
        self, rollout_id: str, attempt_id: str, input: Any, *, worker: str | None, lease: int | None, **fields: Any
    ) -> ModelRollout:
        """A rollout outside the queue with its first attempt."""
        self._create(rollout_id, input, "preparing", **fields)
        return self.start_attempt(rollout_id, attempt_id, worker=worker, lease=lease)

    def start_attempt(self, rollout_id: str, attempt_id: str, *, worker: str | None, lease: int | None) -> ModelRollout:
        """One more attempt, whatever the rollout's status."""
        self._open(self.rollout(rollout_id), attempt_id, worker, lease, claimed=False)
        return self.rollouts[rollout_id]

    def claim(self, attempt_ids: Iterable[str], *, worker: str | None, lease: int | None) -> list[str]:
        """The oldest queued rollouts, taken and begun; those handed to a reader are not there to be taken."""
        claimed: list[str] = []
        for attempt_id in attempt_ids:
            entry = next((entry for entry in self.queue if entry.holder is None), None)
            if entry is None:
                break
            self._open(self.rollouts[entry.rollout_id], attempt_id, worker, lease, claimed=True)
            claimed.append(entry.rollout_id)
        if worker is not None:
            self._polled(worker, empty=not claimed)
        return claimed

    def waiting(self) -> list[Entry]:
        """Entries that nobody holds, oldest first."""
        return [entry for entry in self.queue if entry.holder is None]

    def hand_over(self, consumer: str, count: int) -> list[Entry]:
        """What a reader is given."""
        handed = self.waiting()[:count]
        for entry in handed:
            entry.holder = consumer
        return handed

    def begin(self, entry: Entry, attempt_id: str, *, worker: str, lease: int) -> bool:
        """Open an attempt for an entry that a reader was handed; False when it is void."""
        rollout = self.rollouts[entry.rollout_id]
        if rollout.latest and rollout.latest.attempt_id == attempt_id:
            return True
        if entry not in self.queue:
            return False
        self._open(rollout, attempt_id, worker, lease, claimed=True)
        return True

    def release(self, entry: Entry) -> bool:
        """Give an entry back: to the end of the queue. False when it was void."""
        if entry not in self.queue:
            return False
        self._happened()
        self.queue.remove(entry)
        self.queue.append(Entry(entry.rollout_id))
        return True

    def leave(self, consumer: str) -> int:
        """Give back all that a consumer holds."""
        return sum([self.release(entry) for entry in self.queue.copy() if entry.holder == consumer])

    # --- what happens to attempts

    def add_spans(self, rollout_id: str, attempt_id: str, spans: Sequence[Span], *, assign: bool) -> list[Span]:
        """Store spans of one attempt; returns those that were new, as stored."""
        attempt = self.attempt(rollout_id, attempt_id)
        stored: list[Span] = []
        for span in spans:
            if span.span_id in attempt.spans:
                continue
            number = self.next_sequence(rollout_id) if assign else span.sequence_id
            attempt.spans[span.span_id] = span.model_copy(update={"sequence_id": number})
            stored.append(attempt.spans[span.span_id])
        if not assign:
            self.sequence[rollout_id] = max([self.sequence.get(rollout_id, 0), *(span.sequence_id for span in spans)])
        if stored:
            self._happened()
            if lifecycle.attempt_status_after_span(attempt.status) != attempt.status:
                self._wake(attempt)
                self._look_after(attempt)
            attempt.heartbeat = max(attempt.heartbeat or 0, self.now)
        return stored

    def next_sequence(self, rollout_id: str) -> int:
        """A number that was never handed out."""
        self.sequence[rollout_id] = self.sequence.get(rollout_id, 0) + 1
        return self.sequence[rollout_id]

    def may_call(self, attempt: ModelAttempt) -> str | None:
        """Why a model call of an attempt is refused, or None."""
        rollout = self.rollouts[attempt.rollout_id]
        if attempt.status in ATTEMPT_DATED or rollout.status in FINISHED:
            return "ended"
        return None if attempt is rollout.latest else "superseded"

    def update_attempt(
        self,
        attempt: ModelAttempt,
        *,
        status: AttemptStatus | None = None,
        worker: str | None = None,
        heartbeat: int | None = None,
        metadata: Row | None = None,
        reason: str | None = None,
    ) -> None:
        """What a runner or an operator says of an attempt; None is not said."""
        status = None if status == attempt.status else status
        worker = None if worker == attempt.worker else worker
        heartbeat = None if heartbeat == attempt.heartbeat else heartbeat
        if (status, worker, heartbeat, metadata) == (None, None, None, None):
            return
        self._happened()
        attempt.worker = worker or attempt.worker
        attempt.heartbeat = attempt.heartbeat if heartbeat is None else heartbeat
        attempt.metadata = attempt.metadata if metadata is None else metadata
        if status is not None:
            self._set_attempt(attempt, status, reason)
        if status is not None or worker is not None:
            self._show(attempt, takes_over=worker is not None)
        self._look_after(attempt)

    def renew(self, rollout_id: str, attempt_id: str, lease: int) -> str:
        """A live runner holds the attempt."""
        try:
            attempt = self.attempt(rollout_id, attempt_id)
        except NotFound:
            return "not_found_attempt"
        rollout = self.rollouts[rollout_id]
        if attempt is not rollout.latest:
            return "superseded"
        lost = attempt.status == "unresponsive" and attempt.reason == WORKER_LOST
        if rollout.status in FINISHED or not (attempt.open or lost):
            return "ended"
        if lost:
            self._happened()
            self._wake(attempt)
        attempt.lease_until = self.now + lease
        return "renewed"

    def heartbeat(self, worker_id: str, stats: Row | None) -> None:
        """A worker is alive: it renews the attempt that its row shows."""
        worker = self.workers.setdefault(worker_id, ModelWorker())
        worker.heartbeat = self.now
        worker.stats = worker.stats if stats is None else stats
        attempt = worker.shows
        if attempt and attempt.worker == worker_id and attempt.open:
            self.renew(attempt.rollout_id, attempt.attempt_id, attempt.lease or self.default_lease)

    def retire(self, idle: int) -> list[str]:
        """Forget the workers that were idle for so long and hold nothing; whom."""
        if self._grace > self.now:
            return []
        holding = {entry.holder for entry in self.queue}
        gone = [name for name, row in self.workers.items() if name not in holding and row.is_idle(self.now - idle)]
        for name in gone:
            self._happened()
            del self.workers[name]
        return gone

    # --- what happens to rollouts

    def update_rollout(self, rollout: ModelRollout, *, status: RolloutStatus | None = None, **fields: Any) -> None:
        """Replace fields; a status that it has already is not said."""
        status = None if status == rollout.status else status
        body = {"input", "metadata", "config"} & fields.keys()
        changed = {name for name, value in fields.items() if getattr(rollout, name) != value}
        if status is None and not body and not changed:
            return
        self._happened()
        for name, value in fields.items():
            setattr(rollout, name, value)
        if status is not None:
            self._set_rollout(rollout, status, None)
            rollout.deliveries = 0 if status in QUEUING else rollout.deliveries
        for attempt in rollout.attempts:
            self._look_after(attempt)

    def cancel(self, rollout: ModelRollout, reason: str) -> None:
        """End a rollout on purpose, its newest attempt with it."""
        if rollout.status in FINISHED:
            return
        self._happened()
        attempt = rollout.latest
        self._set_rollout(rollout, "cancelled", reason)
        if attempt and (attempt.open or attempt.status == "unresponsive"):
            self._set_attempt(attempt, "failed", reason)
            self._show(attempt)
            attempt.lease_until = None

    def requeue_dead(self, rollout: ModelRollout) -> None:
        """On the queue again, as if new."""
        self._happened()
        self._set_rollout(rollout, "requeuing", None)
        rollout.deliveries, rollout.lost = 0, len(rollout.attempts)
        for attempt in rollout.attempts:
            self._look_after(attempt)

    def drop_dead(self, rollout: ModelRollout) -> None:
        """No dead letter any more, and nothing else."""
        self._happened()
        self._bury(rollout)

    def update_resources(self, resources_id: str, resources: Any) -> ResourcesUpdate:
        """The next version of a bundle, which becomes the latest."""
        self._happened()
        old = self.resources.pop(resources_id, None)
        self.resources[resources_id] = ResourcesUpdate(
            resources_id=resources_id,
            create_time=old.create_time if old else self.now / US_PER_S,
            update_time=self.now / US_PER_S,
            version=old.version + 1 if old else 1,
            resources=resources,
        )
        return self.resources[resources_id]

    # --- what time does

    def expire(self, order: Sequence[tuple[str, str]], *, begin_late: bool) -> tuple[int, int]:
        """The watchdog looks once.

        Args:
            order: attempts in the order in which those that are overdue end.
            begin_late: whether what was handed over and not begun counts as never begun.

        Returns:
            How many attempts ended, and how many entries were put back or given up.
        """
        self._watch()
        now, ended = self.now, 0
        for rollout_id, attempt_id in order:
            attempt = self.attempt(rollout_id, attempt_id)
            verdict = self._overdue(attempt, now)
            if verdict and self.watched(attempt):
                self._happened()
                self._set_attempt(attempt, *verdict)
                self._show(attempt)
                attempt.lease_until = None
                ended += 1
        held = [entry for entry in self.queue if entry.holder is not None] if begin_late else []
        for entry in held:
            self._never_begun(entry)
        return ended, len(held)

    def deadline(self, attempt: ModelAttempt) -> int | None:
        """When something limits an attempt, or None: grace aside."""
        config, limits = self.rollouts[attempt.rollout_id].config, list[int]()
        if config.timeout_seconds is not None:
            limits.append(attempt.start + _us(config.timeout_seconds))
        if config.unresponsive_seconds is not None:
            limits.append(attempt.heard + _us(config.unresponsive_seconds))
        lease_end = self._lease_end(attempt)
        return min([*limits, *([] if lease_end is None else [lease_end])], default=None)

    def _watch(self) -> None:
        """After an absence, silence proves nothing for one lease."""
        away = self._looked is None or self.now - self._looked > self.default_lease / 3
        attempts = [attempt for rollout in self.rollouts.values() for attempt in rollout.attempts]
        limited = any(self.watched(attempt) and self.deadline(attempt) is not None for attempt in attempts)
        self._looked = self.now
        if away and limited:
            self._grace = self.now + self.default_lease
            self._happened()

    def _lease_end(self, attempt: ModelAttempt) -> int | None:
        by_heartbeat = None
        length = attempt.lease if attempt.lease is not None or attempt.lease_until is None else self.default_lease
        if length is not None and attempt.heartbeat is not None and attempt.heartbeat <= self.now:
            by_heartbeat = attempt.heartbeat + length
        ends = [end for end in (attempt.lease_until, by_heartbeat) if end is not None]
        return max(ends, default=None)

    def _overdue(self, attempt: ModelAttempt, now: int) -> tuple[AttemptStatus, str] | None:
        """What an attempt has become and why: timeout first, then whatever ran out first."""
        config = self.rollouts[attempt.rollout_id].config
        if config.timeout_seconds is not None and now - attempt.start > _us(config.timeout_seconds):
            return "timeout", "timeout"
        silent: list[tuple[int, AttemptStatus, str]] = []
        if config.unresponsive_seconds is not None:
            silent.append((attempt.heard + _us(config.unresponsive_seconds), "unresponsive", "unresponsive"))
        lease_end = self._lease_end(attempt)
        if lease_end is not None:
            silent.append((lease_end, "unresponsive", WORKER_LOST))
        over = [one for one in silent if now > max(one[0], self._grace)]
        # Within grace both are put off to its end; then the rollout's own rule comes first.
        first = min(over, key=lambda one: max(one[0], self._grace), default=None)
        return first and (first[1], first[2])

    def _never_begun(self, entry: Entry) -> None:
        rollout = self.rollouts[entry.rollout_id]
        self._happened()
        self.queue.remove(entry)
        rollout.deliveries += 1
        if rollout.deliveries < self.max_deliveries:
            self.queue.append(Entry(entry.rollout_id))
        else:
            self._set_rollout(rollout, "failed", "never_begun")
            self.dead.append((rollout.rollout_id, "never_begun"))

    # --- how things change

    def _happened(self) -> None:
        self._last_event = self.now

    def _create(self, rollout_id: str, input: Any, status: RolloutStatus, **fields: Any) -> None:
        self._happened()
        self.rollouts[rollout_id] = ModelRollout(rollout_id, input, self.now, status=status, **fields)

    def _open(
        self, rollout: ModelRollout, attempt_id: str, worker: str | None, lease: int | None, *, claimed: bool
    ) -> None:
        self._happened()
        before = rollout.latest
        attempt = ModelAttempt(rollout.rollout_id, attempt_id, len(rollout.attempts) + 1, self.now, worker, lease)
        attempt.lease_until = None if lease is None else self.now + lease
        rollout.attempts.append(attempt)
        rollout.deliveries += claimed
        self._set_rollout(rollout, "preparing", None)
        if before:
            self._look_after(before)
        self._show(attempt, takes_over=True)
        if worker is not None and claimed:
            self.workers[worker].dequeue = self.now

    def _set_attempt(self, attempt: ModelAttempt, status: AttemptStatus, reason: str | None) -> None:
        """An attempt takes a status, and the rollout follows its newest attempt."""
        rollout = self.rollouts[attempt.rollout_id]
        came_back = attempt.reason == WORKER_LOST and reason != WORKER_LOST
        attempt.status, attempt.reason = status, reason
        attempt.end = self.now if status in ATTEMPT_DATED else None
        if attempt is not rollout.latest or rollout.status in FINISHED:
            return
        rollout.lost -= came_back
        becomes = lifecycle.rollout_status_after(
            status,
            sequence_id=attempt.number,
            config=rollout.config,
            lost=rollout.lost,
            reason=reason,
            deliveries=rollout.deliveries,
            max_deliveries=self.max_deliveries,
        )
        rollout.lost += reason == WORKER_LOST
        if becomes == "requeuing" and reason != WORKER_LOST:
            rollout.deliveries = 0
        self._set_rollout(rollout, becomes, reason)
        if becomes == "failed" and reason == WORKER_LOST:
            self.dead.append((rollout.rollout_id, WORKER_LOST))

    def _set_rollout(self, rollout: ModelRollout, status: RolloutStatus, reason: str | None) -> None:
        self._bury(rollout)
        entry = self.place(rollout.rollout_id)
        if status in QUEUING and entry is None:
            self.queue.append(Entry(rollout.rollout_id))
        if status not in QUEUING and entry is not None:
            self.queue.remove(entry)
        if status in FINISHED and rollout.status not in FINISHED:
            self.finished.append((rollout.rollout_id, status))
        rollout.end = self.now if status in FINISHED else None
        rollout.reason = reason if status in FINISHED else None
        rollout.status = status

    def _bury(self, rollout: ModelRollout) -> None:
        """A rollout that moves is no dead letter any more."""
        self.dead = [one for one in self.dead if one[0] != rollout.rollout_id]

    def _wake(self, attempt: ModelAttempt) -> None:
        self._set_attempt(attempt, "running", None)
        self._show(attempt)

    def _show(self, attempt: ModelAttempt, *, takes_over: bool = False) -> None:
        """The worker's row follows its attempts; only a beginning, or a report that names it, takes a busy one over."""
        if attempt.worker is None:
            return
        row = self.workers.get(attempt.worker, ModelWorker())
        if attempt.open and (takes_over or row.status != "busy"):
            row.status, row.busy, row.shows = "busy", self.now, attempt
            self.workers[attempt.worker] = row
        elif not attempt.open and row.shows is attempt:
            row.status, row.idle, row.shows = lifecycle.worker_status_after(attempt.status), self.now, None

    def _polled(self, worker_id: str, *, empty: bool) -> None:
        worker = self.workers.setdefault(worker_id, ModelWorker())
        worker.polled = self.now
        if empty and worker.status != "idle":
            self._happened()
            worker.status, worker.idle, worker.dequeue, worker.shows = "idle", self.now, self.now, None

    def _look_after(self, attempt: ModelAttempt) -> None:
        """Whoever is watched has its lease, a full one if it had lost it; nobody else has one."""
        if not self.watched(attempt):
            attempt.lease_until = None
        elif attempt.lease_until is None and attempt.lease is not None:
            attempt.lease_until = self.now + attempt.lease


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)
