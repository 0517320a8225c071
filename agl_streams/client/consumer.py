"""Work for a runner over HTTP: what `RolloutConsumer` is for a runner beside the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from agl_streams.client.base import new_key
from agl_streams.errors import StoreUnavailable
from agl_streams.logger import get_logger
from agl_streams.models import AttemptedRollout

if TYPE_CHECKING:
    from agl_streams.client.store_client import StoreClient

WAIT_S: Final = 20.0
"""How long one request waits for work: below the idle time-outs of common proxies."""

_log = get_logger()


class HttpRolloutConsumer:
    """Takes rollouts for one worker process. Use by one task at a time.

    The server holds the request until there is work. A request whose answer is lost is repeated under its key and gets
    the same rollouts; what nobody hears of in the end is given back by its lease.
    """

    def __init__(self, store: StoreClient, worker_id: str, lease_seconds: float | None = None) -> None:
        """
        Args:
            worker_id: unique among living processes.
            lease_seconds: None takes the setting's; how soon a dead runner is noticed.
        """
        self._store = store
        self._worker_id = worker_id
        self._lease_s = store.settings.lease_seconds if lease_seconds is None else lease_seconds
        self._stopping = asyncio.Event()

    async def next(self, places: int) -> list[AttemptedRollout]:
        """Wait for work and begin up to ``places`` rollouts. An empty list: stopped, or nothing yet (ask again)."""
        if self._stopping.is_set() or places <= 0:
            return []
        key = new_key()
        asking = asyncio.create_task(
            self._store.dequeue_many_rollouts(
                limit=places,
                worker_id=self._worker_id,
                lease_seconds=self._lease_s,
                request_key=key,
                wait_seconds=WAIT_S,
            )
        )
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        except StoreUnavailable as error:
            _log.warning("consumer_interrupted", url=self._store.url, error=str(error))
            return []
        finally:
            asking.cancel()
            stopping.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)
        # The request was cut off; it may have been given something just before.
        return await self._store.dequeued_before(key, limit=places)

    async def stop(self) -> None:
        """End the pending `next`, which returns what it was given meanwhile. No more work is taken."""
        self._stopping.set()

    async def close(self) -> None:
        """Stop. The connections are the client's."""
        await self.stop()
