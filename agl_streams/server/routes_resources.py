"""Resources and workers over HTTP."""

from __future__ import annotations

from typing import Final

from agl_streams.models import UNSET, NamedResources, PaginatedResult, ResourcesUpdate, Worker
from agl_streams.server import answers, paging, pruning
from agl_streams.server.call import Call
from agl_streams.server.schemas import ResourcesFilter, UpdateWorkerBody, WorkersFilter
from agl_streams.server.table import Route

ResourcesPage = PaginatedResult[ResourcesUpdate]
WorkersPage = PaginatedResult[Worker]


async def list_resources(call: Call) -> bytes:
    """List resources."""
    fields: ResourcesFilter = call.query
    return answers.page(await call.store.query_resources(**paging.arguments(fields, ResourcesUpdate)))


async def add_resources(call: Call) -> bytes:
    """Store new resources."""
    return answers.one(await call.store.add_resources(call.body, request_key=call.request_key))


async def latest_resources(call: Call) -> bytes:
    """Get the resources updated last."""
    return answers.one(await call.store.get_latest_resources())


async def update_resources(call: Call) -> bytes:
    """Store the next version of resources."""
    return answers.one(await call.store.update_resources(call.ids[0], call.body, request_key=call.request_key))


async def get_resources(call: Call) -> bytes:
    """Get resources."""
    return answers.one(await call.store.get_resources_by_id(call.ids[0]))


async def list_workers(call: Call) -> bytes:
    """List workers."""
    return await _workers(call, call.query)


async def search_workers(call: Call) -> bytes:
    """Search workers."""
    return await _workers(call, call.body)


async def get_worker(call: Call) -> bytes:
    """Get a worker."""
    return answers.one(await call.store.get_worker_by_id(call.ids[0]))


async def update_worker(call: Call) -> bytes:
    """Record a heartbeat."""
    body: UpdateWorkerBody = call.body
    fields = paging.given(body, required=("heartbeat_stats",))
    return answers.one(await call.store.update_worker(call.ids[0], fields.get("heartbeat_stats", UNSET)))


async def _workers(call: Call, fields: WorkersFilter) -> bytes:
    return answers.page(await call.store.query_workers(**paging.arguments(fields, Worker)))


WORKERS: Final = (
    Route(
        method="GET", path="/v1/agl/workers", handler=list_workers, tag="workers", summary="List workers",
        query=WorkersFilter, answer=WorkersPage,
    ),
    Route(
        method="POST", path="/v1/agl/workers/search", handler=search_workers, tag="workers", summary="Search workers",
        body=WorkersFilter, answer=WorkersPage,
    ),
    Route(
        method="GET", path="/v1/agl/workers/{worker_id}", handler=get_worker, tag="workers",
        summary="A worker; null when there is none", answer=Worker | None,
    ),
    Route(
        method="POST", path="/v1/agl/workers/{worker_id}", handler=update_worker, tag="workers",
        summary="Record a heartbeat", body=UpdateWorkerBody, body_required=False, answer=Worker,
        nan_is_null=True,
    ),
)  # fmt: skip
RESOURCES: Final = (
    Route(
        method="GET", path="/v1/agl/resources", handler=list_resources, tag="resources", summary="List resources",
        query=ResourcesFilter, answer=ResourcesPage,
    ),
    Route(
        method="POST", path="/v1/agl/resources", handler=add_resources, status=201, tag="resources",
        summary="Store new resources, which become the latest", body=NamedResources,
        prune=pruning.check_resources, answer=ResourcesUpdate,
    ),
    Route(
        method="GET", path="/v1/agl/resources/latest", handler=latest_resources, tag="resources",
        summary="The resources updated last; null when there are none", answer=ResourcesUpdate | None,
    ),
    Route(
        method="POST", path="/v1/agl/resources/{resources_id}", handler=update_resources, tag="resources",
        summary="Store the next version of resources, or the first", body=NamedResources,
        prune=pruning.check_resources, answer=ResourcesUpdate,
    ),
    Route(
        method="GET", path="/v1/agl/resources/{resources_id}", handler=get_resources, tag="resources",
        summary="The newest version of resources; null when there are none", answer=ResourcesUpdate | None,
    ),
)  # fmt: skip
