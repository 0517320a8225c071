"""Dead letters over HTTP: the rollouts that were given up, and what is done with them. Not in the contract."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from agl_streams.models import AttemptedRollout, DeadLetter, PaginatedResult, Rollout
from agl_streams.server import answers
from agl_streams.server.call import Call
from agl_streams.server.table import Route

AnyRollout = AttemptedRollout | Rollout


class DeadQuery(BaseModel):
    """Which page of them."""

    limit: int = -1
    offset: int = 0


async def list_letters(call: Call) -> bytes:
    """Rollouts that were given up."""
    query: DeadQuery = call.query
    return answers.page(await call.store.query_dead_letters(limit=query.limit, offset=query.offset))


async def get_letter(call: Call) -> bytes:
    """One that was given up."""
    return answers.one(await call.store.get_dead_letter(call.ids[0]))


async def requeue_letter(call: Call) -> bytes:
    """Put one on the queue again."""
    return answers.one(await call.store.requeue_dead_letter(call.ids[0], request_key=call.request_key))


async def drop_letter(call: Call) -> bytes:
    """Take one off the list."""
    return answers.one(await call.store.drop_dead_letter(call.ids[0], request_key=call.request_key))


DEAD: Final = (
    Route(
        method="GET", path="/v1/agl/dead", handler=list_letters, tag="rollouts", query=DeadQuery,
        summary="Rollouts that were given up, in the order in which they were", answer=PaginatedResult[DeadLetter],
        ours=True,
    ),
    Route(
        method="GET", path="/v1/agl/dead/{rollout_id}", handler=get_letter, tag="rollouts",
        summary="A rollout that was given up; null when it was not", answer=DeadLetter | None, ours=True,
    ),
    Route(
        method="POST", path="/v1/agl/dead/{rollout_id}/requeue", handler=requeue_letter, tag="rollouts",
        summary="Put a rollout that was given up on the queue again", answer=AnyRollout, ours=True,
    ),
    Route(
        method="POST", path="/v1/agl/dead/{rollout_id}/drop", handler=drop_letter, tag="rollouts",
        summary="Take a rollout that was given up off the list; it stays failed", answer=AnyRollout, ours=True,
    ),
)  # fmt: skip
