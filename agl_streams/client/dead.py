"""Dead letters over HTTP: the rollouts that were given up, and what is done with them."""

from __future__ import annotations

from agl_streams.client.base import ClientBase, maybe, new_key, page_of, rollout_of
from agl_streams.client.transport import segment
from agl_streams.models import DeadLetter, PaginatedResult, Rollout


class DeadCalls(ClientBase):
    """What was given up."""

    async def query_dead_letters(self, *, limit: int = -1, offset: int = 0) -> PaginatedResult[DeadLetter]:
        """Rollouts that were given up; see `StreamStore.query_dead_letters`."""
        answer = await self._transport.get("dead", {"limit": str(limit), "offset": str(offset)})
        return page_of([DeadLetter.checked(one, "the server's answer") for one in answer["items"]], answer)

    async def get_dead_letter(self, rollout_id: str) -> DeadLetter | None:
        """A rollout that was given up, with the reason; None when it was not, or was dealt with since."""
        return maybe(DeadLetter, await self._transport.get(f"dead/{segment(rollout_id)}"))

    async def requeue_dead_letter(self, rollout_id: str, *, request_key: str | None = None) -> Rollout:
        """Put a rollout that was given up on the queue again; see `StreamStore.requeue_dead_letter`."""
        path = f"dead/{segment(rollout_id)}/requeue"
        return rollout_of(await self._transport.post(path, key=request_key or new_key()))

    async def drop_dead_letter(self, rollout_id: str, *, request_key: str | None = None) -> Rollout:
        """Take a rollout that was given up off the list of those; see `StreamStore.drop_dead_letter`."""
        path = f"dead/{segment(rollout_id)}/drop"
        return rollout_of(await self._transport.post(path, key=request_key or new_key()))
