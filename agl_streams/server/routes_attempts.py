"""Attempts over HTTP: opening, reading, reporting, leases."""

from __future__ import annotations

from typing import Final

from agl_streams.models import Attempt, AttemptedRollout, PaginatedResult
from agl_streams.projections import RolloutSums
from agl_streams.server import answers, paging
from agl_streams.server.call import Call
from agl_streams.server.schemas import (
    AttemptsFilter,
    NextSequence,
    RenewAnswer,
    RenewBody,
    RenewManyAnswer,
    RenewManyBody,
    StartAttemptBody,
    UpdateAttemptBody,
)
from agl_streams.server.table import Route

Page = PaginatedResult[Attempt]
_REQUIRED: Final = ("status", "worker_id", "last_heartbeat_time", "metadata")


async def start_attempt(call: Call) -> bytes:
    """Open one more attempt."""
    body: StartAttemptBody = call.body
    opened = await call.store.start_attempt(
        call.ids[0], body.worker_id, lease_seconds=body.lease_seconds, request_key=call.request_key
    )
    return answers.one(opened)


async def list_attempts(call: Call) -> bytes:
    """List the attempts of a rollout."""
    return answers.page(await _query(call, call.query))


async def search_attempts(call: Call) -> bytes:
    """Search the attempts of a rollout."""
    return answers.page(await _query(call, call.body))


async def latest_attempt(call: Call) -> bytes:
    """Get the newest attempt of a rollout."""
    return answers.one(await call.store.get_latest_attempt(call.ids[0]))


async def update_attempt(call: Call) -> bytes:
    """Record a report on an attempt."""
    body: UpdateAttemptBody = call.body
    fields = paging.given(body, required=_REQUIRED)
    rollout_id, attempt_id = call.ids
    return answers.one(await call.store.update_attempt(rollout_id, attempt_id, **fields))


async def renew(call: Call) -> bytes:
    """Extend the lease of an attempt."""
    body: RenewBody = call.body
    outcome = await call.store.renew_attempt(*call.ids, lease_seconds=body.lease_seconds)
    return b'{"outcome":"%b"}' % outcome.encode()


async def renew_many(call: Call) -> bytes:
    """Extend the leases of many attempts."""
    body: RenewManyBody = call.body
    pairs = [(one.rollout_id, one.attempt_id) for one in body.attempts]
    return answers.plain({"outcomes": await call.store.renew_attempts(pairs, lease_seconds=body.lease_seconds)})


async def admit(call: Call) -> bytes:
    """Admit a model call of an attempt."""
    return b'{"sequence_id":%d}' % await call.store.admit_call(*call.ids)


async def sums(call: Call) -> bytes:
    """What the spans of an attempt add up to."""
    return answers.plain(await call.store.attempt_sums(*call.ids))


async def _query(call: Call, fields: AttemptsFilter) -> PaginatedResult[Attempt]:
    return await call.store.query_attempts(call.ids[0], **paging.arguments(fields, Attempt))


_ATTEMPTS: Final = "/v1/agl/rollouts/{rollout_id}/attempts"
_ATTEMPT: Final = f"{_ATTEMPTS}/{{attempt_id}}"

ATTEMPTS: Final = (
    Route(
        method="POST", path=_ATTEMPTS, handler=start_attempt, status=201, tag="attempts",
        summary="Open one more attempt", body=StartAttemptBody, body_required=False,
        answer=AttemptedRollout,
    ),
    Route(
        method="POST", path=f"{_ATTEMPTS}/search", handler=search_attempts, tag="attempts",
        summary="Search the attempts of a rollout", body=AttemptsFilter, answer=Page,
    ),
    Route(
        method="POST", path=_ATTEMPT, handler=update_attempt, tag="attempts",
        summary="Record a report on an attempt; 'latest' is the newest", body=UpdateAttemptBody,
        answer=Attempt, nan_is_null=True,
    ),
)  # fmt: skip
ATTEMPT_READS: Final = (
    Route(
        method="GET", path=_ATTEMPTS, handler=list_attempts, tag="attempts",
        summary="List the attempts of a rollout", query=AttemptsFilter, answer=Page,
    ),
    Route(
        method="GET", path=f"{_ATTEMPTS}/latest", handler=latest_attempt, tag="attempts",
        summary="The newest attempt of a rollout; null when there is none", answer=Attempt | None,
    ),
)  # fmt: skip
ATTEMPT_EXTRAS: Final = (
    Route(
        method="POST", path=f"{_ATTEMPT}/renew", handler=renew, tag="attempts",
        summary="Extend the lease of an attempt that is worked on", body=RenewBody, body_required=False,
        answer=RenewAnswer, ours=True,
    ),
    Route(
        method="POST", path="/v1/agl/leases/renew", handler=renew_many, tag="attempts",
        summary="Extend the leases of many attempts", body=RenewManyBody, answer=RenewManyAnswer, ours=True,
    ),
    Route(
        method="POST", path=f"{_ATTEMPT}/admit", handler=admit, tag="attempts",
        summary="Admit a model call of an open attempt: the number of the span that will record it",
        answer=NextSequence, ours=True,
    ),
    Route(
        method="GET", path=f"{_ATTEMPT}/sums", handler=sums, tag="attempts",
        summary="What the spans of an attempt add up to, as far as the aggregator has come", answer=RolloutSums,
        ours=True,
    ),
)  # fmt: skip
