"""Keeps the leases of a runner alive from a thread of its own, and sends its heartbeat.

An agent may block its own thread, and an async one the event loop that it runs on. So the thread has its own event
loop and its own connection, and shares nothing with the agents but the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import structlog

from agl_streams import clock
from agl_streams.connect import Store, connect
from agl_streams.errors import StoreUnavailable
from agl_streams.logger import get_logger
from agl_workers.loops import persist, together
from agl_workers.snapshot import process_snapshot

RENEWALS_PER_LEASE: Final = 3  # two may be lost before the lease is
HEARTBEAT_S: Final = 10.0  # the interval of Agent-lightning's runner

Ids = tuple[str, str]
"""Rollout id and attempt id."""
OnLost = Callable[[str], object]
"""Called in the keeper's thread with the store's answer: superseded, ended or not_found_attempt."""

_log = get_logger()


class LeaseKeeper:
    """The thread. Started by `start`, ended by `close`; in between any thread may `hold` and `release`.

    Attributes:
        ended: done when the thread has ended; its result is the error that ended it, or None. `check` raises it.
    """

    def __init__(self, store: Store, worker_id: str, *, lease_seconds: float, concurrency: int) -> None:
        """
        Args:
            store: where to connect to; the keeper makes a store of its own.
        """
        self.ended: Future[BaseException | None] = _uncancellable()
        self._connected: Future[None] = _uncancellable()
        self._closing: Future[None] = _uncancellable()
        self._url, self._settings = store.url, store.settings
        self._worker_id = worker_id
        self._lease_s = lease_seconds
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._held: dict[Ids, OnLost] = {}

    async def start(self) -> None:
        """Start the thread; returns when it is connected.

        Raises:
            AglError: the store cannot be used.
        """
        threading.Thread(target=self._main, name=f"leases-{self._worker_id}", daemon=True).start()
        await asyncio.wrap_future(self._connected)

    def hold(self, ids: Ids, on_lost: OnLost) -> None:
        """Renew an attempt's lease from now on, until it is lost or released."""
        with self._lock:
            self._held[ids] = on_lost

    def release(self, ids: Ids) -> None:
        """Let an attempt's lease run out, or forget one that has ended."""
        with self._lock:
            self._held.pop(ids, None)

    def check(self) -> None:
        """Raise the error that ended the thread, if one did: without its keeper a runner must not go on."""
        error = self.ended.result() if self.ended.done() else None
        if error is not None:
            raise error

    async def close(self) -> None:
        """End the thread and wait for it. See `ended` for how it went."""
        if not self._closing.done():
            self._closing.set_result(None)
        await asyncio.wait([asyncio.wrap_future(self.ended)])

    def _main(self) -> None:
        structlog.contextvars.bind_contextvars(worker_id=self._worker_id)
        try:
            asyncio.run(self._work_until_closed())
        except BaseException as error:  # noqa: BLE001 — handed to the runner, which ends with it
            if not self._connected.done():
                self._connected.set_exception(error)
            self.ended.set_result(error)
        else:
            self.ended.set_result(None)

    async def _work_until_closed(self) -> None:
        work = asyncio.create_task(self._work())
        await asyncio.wait({work, asyncio.wrap_future(self._closing)}, return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.result()

    async def _work(self) -> None:
        async with await connect(self._url, settings=self._settings) as store:
            self._connected.set_result(None)
            await together(self._renew_always(store), self._beat_always(store))

    async def _renew_always(self, store: Store) -> None:
        pause_s = self._lease_s / RENEWALS_PER_LEASE
        while True:
            await clock.sleep_s(pause_s)
            await persist(lambda: self._renew(store), "lease_renewal_delayed", most_pause_s=pause_s)

    async def _renew(self, store: Store) -> None:
        """Renew every lease held now, in few calls."""
        with self._lock:
            held = dict(self._held)
        words = await store.renew_attempts(list(held), lease_seconds=self._lease_s)
        for (ids, on_lost), word in zip(held.items(), words, strict=True):
            if word != "renewed":
                self.release(ids)
                on_lost(word)

    async def _beat_always(self, store: Store) -> None:
        while True:
            with self._lock:
                held = len(self._held)
            snapshot = process_snapshot(held_attempts=held, concurrency=self._concurrency)
            try:
                await store.update_worker(self._worker_id, snapshot)
            except StoreUnavailable as error:
                _log.warning("heartbeat_missed", error=str(error))
            await clock.sleep_s(HEARTBEAT_S)


def _uncancellable() -> Future[Any]:
    """A future that a cancelled waiter does not cancel."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future
