"""Reading over HTTP: rollouts, attempts, spans, resources, workers; and writing the last two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, cast

from agl_streams.client.base import ClientBase, encoded, maybe, new_key, page_of, rollout_of
from agl_streams.client.transport import segment
from agl_streams.deprecated import renamed
from agl_streams.errors import InvalidRequest
from agl_streams.models import (
    UNSET,
    Attempt,
    NamedResources,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutStatus,
    Span,
    Unset,
    Worker,
    WorkerStatus,
)
from agl_streams.shapes import Wire
from agl_streams.values import shown

Logic = Literal["and", "or"]
Order = Literal["asc", "desc"]
SPANS_AT_ONCE: Final = 500


class QueryCalls(ClientBase):
    """What there is."""

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        """A rollout, with its newest attempt when it has one; None when unknown."""
        answer = await self._transport.get(f"rollouts/{segment(rollout_id)}")
        return None if answer is None else rollout_of(answer)

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        """The newest attempt of a rollout, or None."""
        return maybe(Attempt, await self._transport.get(f"rollouts/{segment(rollout_id)}/attempts/latest"))

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
        """Rollouts, each with its newest attempt if any; see `StreamStore.query_rollouts`."""
        status_in = renamed(status_in, status, name="status", instead="status_in")
        rollout_id_in = renamed(rollout_id_in, rollout_ids, name="rollout_ids", instead="rollout_id_in")
        answer = await self._search(
            "rollouts/search",
            status_in=None if status_in is None else list(status_in),
            rollout_id_in=None if rollout_id_in is None else list(rollout_id_in),
            rollout_id_contains=rollout_id_contains,
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return page_of(map(rollout_of, answer["items"]), answer)

    async def query_attempts(
        self,
        rollout_id: str,
        *,
        sort_by: str | None = "sequence_id",
        sort_order: Order = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Attempt]:
        """The attempts of a rollout, oldest first; an unknown rollout has none."""
        path = f"rollouts/{segment(rollout_id)}/attempts/search"
        answer = await self._search(path, sort_by=sort_by, sort_order=sort_order, limit=limit, offset=offset)
        return page_of(_models(Attempt, answer["items"]), answer)

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
        """The spans of a rollout: of one attempt, of the ``latest``, or of all; see `StreamStore.query_spans`."""
        answer = await self._search(
            "spans/search",
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            trace_id=trace_id,
            trace_id_contains=trace_id_contains,
            span_id=span_id,
            span_id_contains=span_id_contains,
            parent_id=parent_id,
            parent_id_contains=parent_id_contains,
            name=name,
            name_contains=name_contains,
            filter_logic=filter_logic,
            limit=limit,
            offset=offset,
            sort_by=sort_by,
            sort_order=sort_order,
        )
        return page_of(_models(Span, answer["items"]), answer)

    async def iter_spans(self, rollout_id: str, attempt_id: str) -> AsyncIterator[Span]:
        """The spans of one attempt, in pages. Those added meanwhile may be missing."""
        seen: set[str] = set()
        while True:
            page = await self.query_spans(rollout_id, attempt_id, limit=SPANS_AT_ONCE, offset=len(seen))
            fresh = [span for span in page if span.span_id not in seen]
            for span in fresh:
                seen.add(span.span_id)
                yield span
            if not fresh:
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
        """The newest version of each bundle of resources, in order of their last update unless sorted."""
        fields = {
            "resources_id": resources_id,
            "resources_id_contains": resources_id_contains,
            "sort_by": sort_by,
            "sort_order": sort_order,
            "limit": limit,
            "offset": offset,
        }
        query = {name: str(value) for name, value in fields.items() if value is not None}
        answer = await self._transport.get("resources", query)
        return page_of(_models(ResourcesUpdate, answer["items"]), answer)

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
        """Workers, by id unless sorted."""
        answer = await self._search(
            "workers/search",
            status_in=None if status_in is None else list(status_in),
            worker_id_contains=worker_id_contains,
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return page_of(_models(Worker, answer["items"]), answer)

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        """A worker, or None."""
        return maybe(Worker, await self._transport.get(f"workers/{segment(worker_id)}"))

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset = UNSET) -> Worker:
        """Record a heartbeat; see `StreamStore.update_worker`."""
        body = encoded({"heartbeat_stats": heartbeat_stats}, self.settings.max_input_bytes)
        answer = await self._transport.post(f"workers/{segment(worker_id)}", body)
        return Worker.checked(answer, "the server's answer")

    async def add_resources(self, resources: NamedResources, *, request_key: str | None = None) -> ResourcesUpdate:
        """Store a new bundle, version 1, which becomes the latest."""
        return await self._put_resources("resources", resources, request_key)

    async def update_resources(
        self, resources_id: str, resources: NamedResources, *, request_key: str | None = None
    ) -> ResourcesUpdate:
        """Store the next version of a bundle, or the first one; it becomes the latest."""
        return await self._put_resources(f"resources/{segment(resources_id)}", resources, request_key)

    async def get_resources_by_id(self, resources_id: str) -> ResourcesUpdate | None:
        """The newest version of a bundle, or None."""
        return maybe(ResourcesUpdate, await self._transport.get(f"resources/{segment(resources_id)}"))

    async def get_latest_resources(self) -> ResourcesUpdate | None:
        """The bundle updated last, or None."""
        return maybe(ResourcesUpdate, await self._transport.get("resources/latest"))

    async def _put_resources(self, path: str, resources: NamedResources, key: str | None) -> ResourcesUpdate:
        body = encoded(_plain_resources(resources), self.settings.max_input_bytes)
        answer = await self._transport.post(path, body, key=key or new_key())
        return ResourcesUpdate.checked(answer, "the server's answer")

    async def _search(self, path: str, **fields: Any) -> Any:
        return await self._transport.post(path, encoded(fields, self.settings.max_request_bytes))


def _models(model: type[Any], items: Any) -> list[Any]:
    return [model.checked(item, "the server's answer") for item in items]


def _plain_resources(resources: object) -> dict[str, Any]:
    if not isinstance(resources, dict):
        raise InvalidRequest(f"resources must be a mapping of names to resources, got {shown(resources)}")
    items = cast("dict[Any, Any]", resources)
    return {name: one.model_dump() if isinstance(one, Wire) else one for name, one in items.items()}
