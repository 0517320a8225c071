"""Waiting for rollouts: pushed by the stream of finished ones, never polled."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from agl_streams import clock
from agl_streams.errors import InvalidRequest, StoreUnavailable
from agl_streams.lifecycle import FINISHED
from agl_streams.models import Rollout
from agl_streams.projections import decode_rollout
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.values import shown


class WaitingMixin(StoreBase):
    """Who waits for whom."""

    async def wait_for_rollouts(self, *, rollout_ids: Sequence[str], timeout: float | None = None) -> list[Rollout]:
        """The rollouts that are finished by the deadline, in the order asked. Unknown ones are not waited for.

        Args:
            timeout: seconds; 0 or less looks once, None waits until all known ones are finished.

        Raises:
            InvalidRequest: the timeout is no number of seconds.
            StoreUnavailable: the store was closed while waiting.
        """
        if timeout is not None and (not isinstance(timeout, int | float) or math.isnan(timeout)):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise InvalidRequest(f"timeout must be a number of seconds or None, got {shown(timeout)}")
        if isinstance(rollout_ids, str):
            raise InvalidRequest(f"rollout_ids must be a list of ids, got the text {shown(rollout_ids)}")
        known = {rollout_id for rollout_id in rollout_ids if requests.is_known_form(rollout_id)}
        if timeout is None or timeout > 0:
            await self._wait(known, None if timeout is None else clock.monotonic_s() + timeout)
        return await self._finished_of(rollout_ids)

    async def _wait(self, rollout_ids: set[str], deadline: float | None) -> None:
        """Return when all that exist are finished, or at the deadline (monotonic seconds)."""
        waiter = await self._finished.watch(rollout_ids)
        try:
            pending = await self._still_open(rollout_ids)
            while pending and await self._woken(waiter.event, deadline):
                pending -= waiter.news()
                if waiter.uncertain:
                    waiter.uncertain = False
                    pending = await self._still_open(pending)
        finally:
            self._finished.unwatch(waiter)

    async def finished_counts(self) -> dict[str, int]:
        """How many entries each rollout has in the stream of finished ones. More than one means finished twice."""
        counts: dict[str, int] = {}
        for functions in self._functions:
            async for _, fields in self._entries(functions.keys.finished):
                rollout_id = fields["rollout"]
                counts[rollout_id] = counts.get(rollout_id, 0) + 1
        return counts

    async def _woken(self, event: asyncio.Event, deadline: float | None) -> bool:
        """Whether something finished before the deadline."""
        if self._finished.closed:
            raise StoreUnavailable("the store was closed while somebody waited for rollouts")
        left = None if deadline is None else deadline - clock.monotonic_s()
        if left is not None and left <= 0:
            return False
        try:
            async with asyncio.timeout(left):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def _still_open(self, rollout_ids: set[str]) -> set[str]:
        """Those of the rollouts that exist and are not finished."""
        still: set[str] = set()
        for functions in self._functions:
            mine = [rollout_id for rollout_id in rollout_ids if self.functions_of(rollout_id) is functions]
            statuses = await functions.read_statuses(mine)
            still.update(
                rollout_id
                for rollout_id, status in zip(mine, statuses, strict=True)
                if status is not None and status not in FINISHED
            )
        return still

    async def _finished_of(self, rollout_ids: Sequence[str]) -> list[Rollout]:
        found: dict[str, Rollout] = {}
        for functions in self._functions:
            mine = [one for one in dict.fromkeys(rollout_ids) if requests.is_known_form(one)]
            mine = [one for one in mine if self.functions_of(one) is functions]
            for view in await functions.read_rollouts(mine):
                if view is not None:
                    rollout = decode_rollout(view)
                    found[rollout.rollout_id] = rollout
        return [found[one] for one in rollout_ids if one in found and found[one].status in FINISHED]
