"""One attempt from begin to report: resources, agent, spans, report; each a stage, ending in one `Outcome`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from agl_streams.agent import AttemptContext, call_agent, exception_span, spans_for_result
from agl_streams.connect import Store
from agl_streams.errors import AglError, InvalidRequest, NotFound
from agl_streams.logger import get_logger
from agl_streams.models import AttemptedRollout, ResourcesUpdate, Span
from agl_streams.values import type_name
from agl_workers.loops import persist
from agl_workers.outcome import Outcome, Verdict

MISSING_RESOURCES: Final = "missing_resources"
"""The reason of an attempt whose rollout names resources that are not there."""
MOST_PAUSE_S: Final = 1.0  # between tries while the store is away: every runner waits for the same moment

_log = get_logger()


class AttemptRun:
    """Carries one attempt out. Make it in the event loop that runs it.

    While the store is away, every stage waits for it: a result that has been computed is worth more than a free place,
    and a report that comes too late changes nothing. `lose` and `abandon` end the waiting.
    """

    def __init__(self, store: Store, agent: Callable[..., Any], rollout: AttemptedRollout) -> None:
        self.rollout = rollout
        self._store = store
        self._agent = agent
        self._task: asyncio.Task[Any] | None = None
        self._cut: Outcome | None = None
        self._reporting = False

    @property
    def ids(self) -> tuple[str, str]:
        """Rollout id and attempt id."""
        return self.rollout.rollout_id, self.rollout.attempt.attempt_id

    async def execute(self) -> Outcome:
        """Carry the attempt out. Raises nothing: what goes wrong is an outcome, and is logged."""
        if self._cut is not None:
            return self._cut
        self._task = asyncio.current_task()
        try:
            return await self._stages()
        except asyncio.CancelledError:
            return self._cut or self._unfinished()
        except Exception:  # noqa: BLE001 — a fault in one attempt must not take the others of this process with it
            _log.exception("attempt_run_broken")
            return self._unfinished()

    def lose(self, word: str) -> None:
        """The store says that the attempt is no longer ours: stop the agent, report nothing.

        Args:
            word: superseded, ended or not_found_attempt.
        """
        # While it reports, the word may be about this very report; and a report on a lost attempt changes nothing.
        if self._cut is None and not self._reporting:
            _log.warning("attempt_taken_away", rollout_id=self.ids[0], attempt_id=self.ids[1], answer=word)
            self._stop(Outcome.SUPERSEDED)

    def abandon(self) -> None:
        """Stop now, whatever the stage, and leave the attempt to its lease."""
        if self._cut is None:
            self._stop(self._unfinished())

    async def _stages(self) -> Outcome:
        try:
            resources = await persist(self._fetch_resources, "resources_delayed", most_pause_s=MOST_PAUSE_S)
        except NotFound as error:
            context = self._context(None)
            verdict = self._failure(context, error, MISSING_RESOURCES)
        else:
            context = self._context(resources)
            verdict = await self._run_agent(context)
        # An agent that is told to stop may end in any way, with a result too. None of it counts.
        if self._cut is None:
            verdict = await self._store_spans(context, verdict)
        return self._cut or await self._report(verdict)

    async def _fetch_resources(self) -> ResourcesUpdate | None:
        """The resources that the rollout names, else the latest; None where nobody has made any.

        Raises:
            NotFound: the rollout names some that are not there.
        """
        named = self.rollout.resources_id
        if named is None:
            return await self._store.get_latest_resources()
        found = await self._store.get_resources_by_id(named)
        if found is None:
            raise NotFound(f"rollout {self.ids[0]!r} runs against resources {named!r}, and there are none of that id")
        return found

    def _context(self, resources: ResourcesUpdate | None) -> AttemptContext:
        limit = self._store.settings.max_span_bytes
        return AttemptContext(self.rollout, resources, self._add_spans, max_span_bytes=limit)

    async def _run_agent(self, context: AttemptContext) -> Verdict:
        """Run the agent and emit what its result stands for."""
        try:
            with context.bound():
                result = await call_agent(self._agent, context)
            context.emit(*spans_for_result(result, context))
        except asyncio.CancelledError as error:
            if self._is_cancelled():
                raise
            return self._failure(context, error)  # the agent's own: it awaited something that was cancelled
        except Exception as error:  # noqa: BLE001 — whatever an agent raises is its failure, and is recorded
            return self._failure(context, error)
        return Verdict("succeeded")

    def _failure(self, context: AttemptContext, error: BaseException, reason: str | None = None) -> Verdict:
        """Emit the exception as a span; the verdict says it in a line."""
        span = exception_span(error, context)
        try:
            context.emit(span)
        except InvalidRequest as refusal:
            _log.warning("exception_span_refused", error=str(refusal))
        return Verdict("failed", reason or _one_line(span.status.description or span.name))

    async def _store_spans(self, context: AttemptContext, verdict: Verdict) -> Verdict:
        """Wait until all spans are stored: an attempt that counts is complete."""
        try:
            await persist(context.flush, "spans_delayed", most_pause_s=MOST_PAUSE_S)
        except InvalidRequest as error:
            _log.warning("spans_refused", error=str(error))
            return Verdict("failed", _one_line(f"{type_name(error)}: {error}"))
        return verdict

    async def _report(self, verdict: Verdict) -> Outcome:
        self._reporting = True
        report = partial(self._store.update_attempt, *self.ids, status=verdict.status, reason=verdict.reason)
        try:
            await persist(report, "report_delayed", most_pause_s=MOST_PAUSE_S)
        except NotFound as error:
            _log.warning("report_without_attempt", error=str(error))
            return Outcome.SUPERSEDED
        return Outcome(verdict.status)

    async def _add_spans(self, spans: list[Span]) -> None:
        """The sink of the context. Stores each span that can be stored, and raises the first error."""
        if self._cut is not None:
            # A span revives an attempt that was given up; nobody would work on it.
            _log.info("late_spans_dropped", rollout_id=self.ids[0], attempt_id=self.ids[1], spans=len(spans))
            return
        try:
            await self._store.add_many_spans(spans, assign_sequence=True)
        except NotFound:
            self.lose("not_found_attempt")
        except InvalidRequest:
            if len(spans) == 1:
                raise
            await self._add_one_by_one(spans)

    async def _add_one_by_one(self, spans: list[Span]) -> None:
        """One bad span refuses its whole batch: the others are stored without it."""
        first_error: AglError | None = None
        for span in spans:
            try:
                await self._add_spans([span])
            except InvalidRequest as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _stop(self, outcome: Outcome) -> None:
        self._cut = outcome
        # From within the task itself, as from its flush, the next look at `_cut` ends it.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _is_cancelled(self) -> bool:
        return self._cut is not None or (self._task is not None and self._task.cancelling() > 0)

    def _unfinished(self) -> Outcome:
        return Outcome.UNREPORTED if self._reporting else Outcome.ABANDONED


def _one_line(text: str) -> str:
    return " ".join(text.split())
