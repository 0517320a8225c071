"""Reading: rollouts, attempts, spans, resources, workers; by id, by status, filtered, ordered, in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, cast

from agl_streams import bodies
from agl_streams.deprecated import renamed
from agl_streams.errors import NotFound
from agl_streams.keys import unescape
from agl_streams.models import (
    Attempt,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutStatus,
    Span,
    Worker,
    WorkerStatus,
)
from agl_streams.projections import ATTEMPT, ROLLOUT, RolloutSums, View, decode_attempt, decode_rollout, decode_sums
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.store.paging import Index, creation, indexed_page, serves
from agl_streams.store.resources import decode_resources
from agl_streams.store.selection import Logic, Order, Page, contains, exact, page_of, select, within
from agl_streams.store.workers import merge_workers

ATTEMPTS: Final = 100  # attempts per call
SPAN_SCAN: Final = 200  # spans per HSCAN step: some hundred KB of reply


class QueriesMixin(StoreBase):
    """What there is."""

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        """A rollout, with its newest attempt when it has one (``AttemptedRollout``); None when unknown."""
        if not requests.is_known_form(rollout_id):
            return None
        view = (await self.functions_of(rollout_id).read_rollouts([rollout_id]))[0]
        return None if view is None else decode_rollout(view)

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        """The newest attempt of a rollout, or None."""
        rollout = await self.get_rollout_by_id(rollout_id)
        return getattr(rollout, "attempt", None)

    async def rollout_sums(self, rollout_id: str) -> RolloutSums:
        """What the aggregator has folded of a rollout. `settle` first for the state of this moment.

        Raises:
            NotFound: no such rollout.
        """
        view = (await self.functions_of(requests.known_form(rollout_id)).read_rollouts([rollout_id]))[0]
        if view is None:
            raise NotFound(f"rollout_sums({rollout_id!r}): there is no such rollout")
        return decode_sums(ROLLOUT, view[1])

    async def attempt_sums(self, rollout_id: str, attempt_id: str) -> RolloutSums:
        """What the aggregator has folded of an attempt.

        Raises:
            NotFound: no such rollout or attempt.
        """
        functions = self.functions_of(requests.known_form(rollout_id))
        view = await functions.read_attempt(rollout_id, requests.known_form(attempt_id))
        return decode_sums(ATTEMPT, view[1])

    async def query_rollouts(
        self,
        *,
        status_in: Sequence[RolloutStatus] | None = None,
        rollout_id_in: Sequence[str] | None = None,
        rollout_id_contains: str | None = None,
        filter_logic: Logic = "and",
        sort_by: str | None = None,
        sort_order: Order = "asc",
        limit: int = -1,
        offset: int = 0,
        status: Sequence[RolloutStatus] | None = None,
        rollout_ids: Sequence[str] | None = None,
    ) -> PaginatedResult[Rollout]:
        """Rollouts, each with its newest attempt if any, in order of creation unless sorted.

        By id and by status they are found through an index; the rest scans in bounded batches.

        Args:
            status, rollout_ids: deprecated names of ``status_in`` and ``rollout_id_in``, which count where both are
                given.

        Raises:
            InvalidRequest: a bad filter, sort field, limit or offset.
        """
        status_in = renamed(status_in, status, name="status", instead="status_in")
        rollout_id_in = renamed(rollout_id_in, rollout_ids, name="rollout_ids", instead="rollout_id_in")
        page = Page(limit, offset, sort_by, sort_order)
        page.check(Rollout)
        for word in status_in or ():
            requests.one_of(word, requests.ROLLOUT_STATUSES, "status_in")
        conditions = [
            *within("status", status_in),
            *within("rollout_id", rollout_id_in),
            *contains("rollout_id", rollout_id_contains),
        ]
        narrowed = filter_logic == "and" or len(conditions) == 1
        if rollout_id_in is None and rollout_id_contains is None and serves(page):
            return await indexed_page(self._indexes(status_in), page)
        ids = await self._candidates(status_in if narrowed else None, rollout_id_in if narrowed else None)
        return page_of(select(await self._rollouts(ids), conditions, filter_logic), page)

    async def query_attempts(
        self,
        rollout_id: str,
        *,
        sort_by: str | None = "sequence_id",
        sort_order: Order = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Attempt]:
        """The attempts of a rollout, oldest first; an unknown rollout has none.

        Raises:
            InvalidRequest: a bad sort field, limit or offset.
        """
        page = Page(limit, offset, sort_by, sort_order)
        page.check(Attempt)
        return page_of(await self._attempts(rollout_id), page)

    async def query_spans(
        self,
        rollout_id: str,
        attempt_id: str | None = None,
        *,
        trace_id: str | None = None,
        trace_id_contains: str | None = None,
        span_id: str | None = None,
        span_id_contains: str | None = None,
        parent_id: str | None = None,
        parent_id_contains: str | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        filter_logic: Logic = "and",
        limit: int = -1,
        offset: int = 0,
        sort_by: str | None = "sequence_id",
        sort_order: Order = "asc",
    ) -> PaginatedResult[Span]:
        """The spans of a rollout: of one attempt, of the ``latest``, or (None) of all.

        Ordered by sequence id, then start and end time, unless sorted otherwise. An unknown rollout has none.

        Raises:
            InvalidRequest: a bad filter, sort field, limit or offset.
        """
        page = Page(limit, offset, sort_by, sort_order)
        page.check(Span)
        exacts = {"trace_id": trace_id, "span_id": span_id, "parent_id": parent_id, "name": name}
        parts = {
            "trace_id": trace_id_contains,
            "span_id": span_id_contains,
            "parent_id": parent_id_contains,
            "name": name_contains,
        }
        conditions = [
            *(condition for field, value in exacts.items() for condition in exact(field, value)),
            *(condition for field, part in parts.items() for condition in contains(field, part)),
        ]
        spans: list[Span] = []
        for attempt in await self._attempt_ids(rollout_id, attempt_id):
            spans += [span async for span in self.iter_spans(rollout_id, attempt)]
        spans.sort(key=_span_order)
        return page_of(select(spans, conditions, filter_logic), page)

    async def iter_spans(self, rollout_id: str, attempt_id: str) -> AsyncIterator[Span]:
        """The spans of one attempt in no particular order, in bounded steps. Those added meanwhile may be missing."""
        key = self.functions_of(requests.known_form(rollout_id)).keys.spans(rollout_id, requests.known_form(attempt_id))
        cursor: Any = b"0"
        seen: set[bytes] = set()
        while True:
            cursor, flat = cast("Any", await self.connection.execute("HSCAN", key, cursor, "COUNT", SPAN_SCAN))
            for span_id, value in zip(flat[::2], flat[1::2], strict=True):
                if span_id not in seen:  # HSCAN may give a field twice while the hash grows
                    seen.add(span_id)
                    yield decode_span(value)
            if cursor == b"0":
                return

    async def query_resources(
        self,
        *,
        resources_id: str | None = None,
        resources_id_contains: str | None = None,
        sort_by: str | None = None,
        sort_order: Order = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[ResourcesUpdate]:
        """The newest version of each bundle of resources, in order of their last update unless sorted.

        Raises:
            InvalidRequest: a bad sort field, limit or offset.
        """
        page = Page(limit, offset, sort_by, sort_order)
        page.check(ResourcesUpdate)
        functions = self._functions[0]
        ids = [one async for one in self._members(functions.keys.resources)]
        found = [decode_resources(view) for view in await functions.read_resources(ids) if view]
        conditions = [*exact("resources_id", resources_id), *contains("resources_id", resources_id_contains)]
        return page_of(select(found, conditions, "and"), page)

    async def query_workers(
        self,
        *,
        status_in: Sequence[WorkerStatus] | None = None,
        worker_id_contains: str | None = None,
        filter_logic: Logic = "and",
        sort_by: str | None = None,
        sort_order: Order = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Worker]:
        """Workers, by id unless sorted.

        Raises:
            InvalidRequest: a bad filter, sort field, limit or offset.
        """
        page = Page(limit, offset, sort_by, sort_order)
        page.check(Worker)
        views: dict[str, list[View]] = {}
        for functions in self._functions:
            ids = {one async for one in self._members(functions.keys.workers)}
            ids |= {one async for one in self._members(functions.keys.live_workers)}
            for view in await functions.read_workers(sorted(ids)):
                if view:
                    views.setdefault(unescape(view[0].decode()), []).append(view)
        workers = [merge_workers(views[worker_id]) for worker_id in sorted(views)]
        conditions = [*within("status", status_in), *contains("worker_id", worker_id_contains)]
        return page_of(select(workers, conditions, filter_logic), page)

    async def _candidates(self, status_in: Sequence[str] | None, rollout_id_in: Sequence[str] | None) -> list[str]:
        """The ids to look at, in order of creation: the narrowest index that holds every match."""
        if rollout_id_in is not None:
            return [one for one in dict.fromkeys(rollout_id_in) if requests.is_known_form(one)]
        return [one for index in self._indexes(status_in) async for one in self._members(index.key)]

    def _indexes(self, status_in: Sequence[str] | None) -> list[Index]:
        """The indexes that hold all rollouts, or those of some statuses."""
        indexes: list[Index] = []
        for functions in self._functions:
            keys = functions.keys
            names = [keys.created]
            if status_in is not None:
                names = [keys.status(status) for status in dict.fromkeys(status_in)]
            indexes += [Index(functions, name) for name in names]
        return indexes

    async def _rollouts(self, ids: Sequence[str]) -> list[Rollout]:
        """Rollouts by id in order of creation."""
        views: list[View] = []
        for functions in self._functions:
            mine = [one for one in ids if self.functions_of(one) is functions]
            views += [view for view in await functions.read_rollouts(mine) if view]
        views.sort(key=creation)
        return [decode_rollout(view) for view in views]

    async def _attempts(self, rollout_id: str) -> list[Attempt]:
        if not requests.is_known_form(rollout_id):
            return []
        functions = self.functions_of(rollout_id)
        attempts: list[Attempt] = []
        while True:
            first = len(attempts) + 1
            try:
                views = await functions.read_attempts(rollout_id, first, first + ATTEMPTS - 1)
            except NotFound:
                return []
            if not views:
                return attempts
            attempts += [decode_attempt(rollout_id, view) for view in views]

    async def _attempt_ids(self, rollout_id: str, attempt_id: str | None) -> list[str]:
        if attempt_id is not None and attempt_id != "latest":
            known = requests.is_known_form(rollout_id) and requests.is_known_form(attempt_id)
            return [attempt_id] if known else []
        if attempt_id is None:
            return [attempt.attempt_id for attempt in await self._attempts(rollout_id)]
        latest = await self.get_latest_attempt(rollout_id)
        return [] if latest is None else [latest.attempt_id]


def decode_span(value: bytes) -> Span:
    """A stored span: sequence number, request token and the payload's bytes, see ``append_spans.lua``."""
    number, _, payload = value.split(b"|", 2)
    span = Span.from_json(bodies.unpack(payload))
    sequence_id = int(number)
    return span if span.sequence_id == sequence_id else span.model_copy(update={"sequence_id": sequence_id})


def _span_order(span: Span) -> tuple[int, float, float]:
    last = float("inf")
    start = last if span.start_time is None else span.start_time
    return span.sequence_id, start, last if span.end_time is None else span.end_time
