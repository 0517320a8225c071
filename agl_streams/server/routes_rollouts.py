"""Rollouts over HTTP: the queue, starting, reading, updating, waiting, cancelling."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from agl_streams.errors import InvalidRequest
from agl_streams.lifecycle import WORKER_LOST
from agl_streams.models import AttemptedRollout, PaginatedResult, Rollout
from agl_streams.projections import RolloutSums
from agl_streams.server import answers, paging
from agl_streams.server.call import REQUEST_KEY, Call, Draining
from agl_streams.server.schemas import (
    CancelBody,
    DequeueBody,
    DequeuedBody,
    EnqueueBody,
    RolloutsFilter,
    StartRolloutBody,
    UpdateRolloutBody,
    WaitBody,
)
from agl_streams.server.table import Route

MAX_WAIT_S: Final = 30 * 24 * 3600.0
"""A longer wait is one without end."""

Rollouts = list[Rollout]
AnyRollout = AttemptedRollout | Rollout
Page = PaginatedResult[AnyRollout]


async def enqueue(call: Call) -> bytes:
    """Put rollouts on the queue."""
    body: EnqueueBody = call.body
    return answers.many(await call.store.enqueue_many_rollouts(body.rollouts))


async def dequeue(call: Call) -> bytes:
    """Take rollouts off the queue."""
    body: DequeueBody = call.body
    if body.limit <= 0:
        return b"[]"

    if call.repeated and call.request_key:
        before = await call.store.dequeued_before(call.request_key, limit=body.limit)
        if before:
            return answers.many(before)
    wait_s = call.store.settings.dequeue_wait_seconds if body.wait is None else body.wait
    if not wait_s > 0:
        return answers.many(await _claim(call, body))
    waiting = call.services.queue.dequeue(partial(_claim_or_give_back, call, body), min(wait_s, MAX_WAIT_S))
    try:
        return answers.many(await call.while_connected(waiting))
    except Draining:
        if body.wait is None:  # nobody asked for a wait, so its end is no fault: the queue was empty
            return b"[]"
        raise


async def _claim(call: Call, body: DequeueBody) -> list[AttemptedRollout]:
    return await call.store.dequeue_many_rollouts(
        limit=body.limit,
        worker_id=body.worker_id,
        lease_seconds=body.lease_seconds,
        request_key=call.request_key,
    )


async def _claim_or_give_back(call: Call, body: DequeueBody) -> list[AttemptedRollout]:
    claiming = asyncio.ensure_future(_claim(call, body))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        # The caller went while it was being given something. Who sent a key can ask for it; for others it goes back.
        for taken in await claiming if call.request_key is None else ():
            ids = (taken.rollout_id, taken.attempt.attempt_id)
            await call.store.update_attempt(*ids, status="unresponsive", reason=WORKER_LOST)
        raise


async def dequeued(call: Call) -> bytes:
    """What an earlier dequeue was given."""
    body: DequeuedBody = call.body
    if call.request_key is None:
        raise InvalidRequest(f"the header {REQUEST_KEY.decode()} is missing: it tells which dequeue is meant")
    return answers.many(await call.store.dequeued_before(call.request_key, limit=body.limit))


async def start(call: Call) -> bytes:
    """Make a rollout outside the queue."""
    body: StartRolloutBody = call.body
    fields = {name: getattr(body, name) for name in StartRolloutBody.model_fields}
    return answers.one(await call.store.start_rollout(**fields, request_key=call.request_key))


async def list_rollouts(call: Call) -> bytes:
    """List rollouts."""
    return answers.page(await _query(call, call.query))


async def search_rollouts(call: Call) -> bytes:
    """Search rollouts."""
    return answers.page(await _query(call, call.body))


async def get_rollout(call: Call) -> bytes:
    """Get a rollout."""
    return answers.one(await call.store.get_rollout_by_id(call.ids[0]))


async def update_rollout(call: Call) -> bytes:
    """Update a rollout."""
    body: UpdateRolloutBody = call.body
    fields = paging.given(body, required=("status", "config"))
    return answers.one(await call.store.update_rollout(call.ids[0], **fields))


async def cancel_rollout(call: Call) -> bytes:
    """Cancel a rollout."""
    body: CancelBody = call.body
    return answers.one(await call.store.cancel_rollout(call.ids[0], body.reason))


async def sums(call: Call) -> bytes:
    """What the spans of a rollout add up to."""
    return answers.plain(await call.store.rollout_sums(call.ids[0]))


async def wait(call: Call) -> bytes:
    """Wait until rollouts are finished."""
    body: WaitBody = call.body
    timeout = body.timeout
    if timeout is not None and timeout > MAX_WAIT_S:
        timeout = None
    waiting = call.store.wait_for_rollouts(rollout_ids=body.rollout_ids, timeout=timeout)
    if timeout is not None and timeout <= 0:
        return answers.many(await waiting)
    return answers.many(await call.while_connected(waiting))


async def _query(call: Call, fields: RolloutsFilter) -> PaginatedResult[Rollout]:
    return await call.store.query_rollouts(**paging.arguments(fields, Rollout))


QUEUE: Final = (
    Route(
        method="POST", path="/v1/agl/queues/rollouts/enqueue", handler=enqueue, status=201, tag="rollouts",
        summary="Put rollouts on the queue", body=EnqueueBody, answer=Rollouts, nan_is_null=True,
    ),
    Route(
        method="POST", path="/v1/agl/queues/rollouts/dequeue", handler=dequeue, tag="rollouts",
        summary="Take rollouts off the queue", body=DequeueBody, body_required=False,
        answer=list[AttemptedRollout],
    ),
    Route(
        method="POST", path="/v1/agl/queues/rollouts/dequeued", handler=dequeued, tag="rollouts",
        summary="What an earlier dequeue was given", body=DequeuedBody, body_required=False,
        answer=list[AttemptedRollout], ours=True,
    ),
)  # fmt: skip
ROLLOUTS: Final = (
    Route(
        method="POST", path="/v1/agl/rollouts", handler=start, status=201, tag="rollouts",
        summary="Make a rollout outside the queue, with its first attempt", body=StartRolloutBody,
        answer=AttemptedRollout, nan_is_null=True,
    ),
    Route(
        method="GET", path="/v1/agl/rollouts", handler=list_rollouts, tag="rollouts", summary="List rollouts",
        query=RolloutsFilter, answer=Page,
    ),
    Route(
        method="POST", path="/v1/agl/rollouts/search", handler=search_rollouts, tag="rollouts",
        summary="Search rollouts", body=RolloutsFilter, answer=Page,
    ),
    Route(
        method="GET", path="/v1/agl/rollouts/{rollout_id}", handler=get_rollout, tag="rollouts",
        summary="A rollout with its newest attempt; null when there is none", answer=AnyRollout | None,
    ),
    Route(
        method="POST", path="/v1/agl/rollouts/{rollout_id}", handler=update_rollout, tag="rollouts",
        summary="Replace fields of a rollout", body=UpdateRolloutBody, answer=Rollout, nan_is_null=True,
    ),
)  # fmt: skip
ROLLOUT_EXTRAS: Final = (
    Route(
        method="POST", path="/v1/agl/rollouts/{rollout_id}/cancel", handler=cancel_rollout, tag="rollouts",
        summary="End a rollout on purpose", body=CancelBody, answer=AnyRollout, ours=True,
    ),
    Route(
        method="GET", path="/v1/agl/rollouts/{rollout_id}/sums", handler=sums, tag="rollouts",
        summary="What the spans of a rollout add up to, as far as the aggregator has come", answer=RolloutSums,
        ours=True,
    ),
)  # fmt: skip
WAITS: Final = (
    Route(
        method="POST", path="/v1/agl/waits/rollouts", handler=wait, tag="rollouts",
        summary="Wait until rollouts are finished; any timeout is allowed", body=WaitBody, answer=Rollouts,
    ),
)  # fmt: skip
