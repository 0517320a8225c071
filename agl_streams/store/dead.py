"""Dead letters: rollouts that were given up, because every runner that had one was lost; and what is done with them."""

from __future__ import annotations

from typing import NamedTuple, cast

from agl_streams.models import DeadLetter, PaginatedResult, Rollout
from agl_streams.projections import ROLLOUT, View, decode_rollout, fields
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.store.repeats import RequestKey
from agl_streams.store.selection import NO_LIMIT, Page


class _Entry(NamedTuple):
    at: tuple[int, ...]  # the entry's id, which is when it came
    rollout_id: str
    reason: str


class DeadMixin(StoreBase):
    """What was given up."""

    async def query_dead_letters(self, *, limit: int = -1, offset: int = 0) -> PaginatedResult[DeadLetter]:
        """Rollouts that were given up and that nobody has dealt with since, in the order in which they were.

        Not in Agent-lightning's contract.

        Raises:
            InvalidRequest: a bad limit or offset.
        """
        page = Page(limit, offset)
        page.check(DeadLetter)
        entries: list[_Entry] = []
        for functions in self._functions:
            entries += [_entry(one, row) async for one, row in self._entries(functions.keys.dead)]
        entries.sort()
        wanted = entries[offset : None if limit == NO_LIMIT else offset + limit]
        views: dict[str, View | None] = {}
        for functions in self._functions:
            mine = [entry.rollout_id for entry in wanted if self.functions_of(entry.rollout_id) is functions]
            views.update(zip(mine, await functions.read_rollouts(mine), strict=True))
        letters = [_letter(view, entry.reason) for entry in wanted if (view := views[entry.rollout_id])]
        return PaginatedResult(items=letters, limit=limit, offset=offset, total=len(entries))

    async def get_dead_letter(self, rollout_id: str) -> DeadLetter | None:
        """A rollout that was given up, with the reason; None when it was not, or was dealt with since.

        Not in Agent-lightning's contract.
        """
        if not requests.is_known_form(rollout_id):
            return None
        functions = self.functions_of(rollout_id)
        entry = cast("bytes | None", await self.connection.execute("HGET", functions.keys.rollout(rollout_id), "dead"))
        view = (await functions.read_rollouts([rollout_id]))[0]
        if entry is None or view is None:
            return None
        return _letter(view, fields(ROLLOUT, view[1])["reason"])

    async def requeue_dead_letter(self, rollout_id: str, *, request_key: str | None = None) -> Rollout:
        """Put a rollout that was given up on the queue again, as if new.

        Its deliveries count from 0, and none of its attempts so far counts as one of its ``max_attempts``. Not in
        Agent-lightning's contract.

        Args:
            request_key: a repeat of the call with the same key changes nothing.

        Raises:
            NotFound: no such rollout.
            Conflict: it is no dead letter.
        """
        functions, token = self.functions_of(requests.known_form(rollout_id)), RequestKey.of(request_key).token
        return decode_rollout(await functions.requeue_dead(rollout_id, token))

    async def drop_dead_letter(self, rollout_id: str, *, request_key: str | None = None) -> Rollout:
        """Take a rollout that was given up off the list of those; it stays failed. Not in Agent-lightning's contract.

        Args:
            request_key: a repeat of the call with the same key changes nothing.

        Raises:
            NotFound: no such rollout.
            Conflict: it is no dead letter.
        """
        functions, token = self.functions_of(requests.known_form(rollout_id)), RequestKey.of(request_key).token
        return decode_rollout(await functions.drop_dead(rollout_id, token))


def _entry(entry_id: str, row: dict[str, str]) -> _Entry:
    return _Entry(tuple(map(int, entry_id.split("-"))), row["rollout"], row["reason"])


def _letter(view: View, reason: str) -> DeadLetter:
    rollout = decode_rollout(view)
    deliveries = int(fields(ROLLOUT, view[1])["deliveries"])
    return DeadLetter(rollout_id=rollout.rollout_id, reason=reason, deliveries=deliveries, rollout=rollout)
