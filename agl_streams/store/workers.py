"""Workers: derived from what attempts do and from heartbeats, never set by hand."""

from __future__ import annotations

from typing import Any

from agl_streams import bodies
from agl_streams.keys import escape
from agl_streams.models import UNSET, Unset, Worker
from agl_streams.projections import View, decode_worker
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.values import check_worker_id


class WorkersMixin(StoreBase):
    """Who does the work."""

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset = UNSET) -> Worker:
        """Record a heartbeat. It renews the lease of the worker's current attempt and touches no other field.

        Raises:
            InvalidRequest, TooLarge: the statistics are no JSON object; the message names the place.
        """
        worker, stats = self._worker(worker_id), b""
        if heartbeat_stats is not UNSET:
            content = requests.metadata_dict(heartbeat_stats, "heartbeat_stats")
            stats = bodies.encode_json(content, "heartbeat_stats", self.settings.max_input_bytes)
        # A worker may hold attempts of several shards, and each shard renews its own.
        views = [await functions.heartbeat(worker, stats, self._lease_us) for functions in self._functions]
        return merge_workers(views)

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        """A worker, or None."""
        check_worker_id(worker_id)
        views = [(await functions.read_workers([escape(worker_id)]))[0] for functions in self._functions]
        known = [view for view in views if view]
        return merge_workers(known) if known else None


def merge_workers(views: list[View]) -> Worker:
    """One worker from its rows in several shards: the newest transition wins, of two times of a kind the later."""
    rows = [decode_worker(view) for view in views]
    # Of two in the same microsecond the beginning: a dequeue that finds nothing in one shard goes on to the next.
    newest = max(rows, key=lambda row: (last_transition(row), row.status == "busy"))
    times = ("last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time")
    latest = {name: max((getattr(row, name) or 0.0 for row in rows), default=0.0) or None for name in times}
    stats = max(rows, key=lambda row: row.last_heartbeat_time or 0.0).heartbeat_stats
    return newest.model_copy(update={**latest, "heartbeat_stats": stats})


def last_seen(worker: Worker) -> float:
    """When a worker last began, ended, asked or was heard of, Unix seconds; 0 where nothing tells."""
    return max(last_transition(worker), worker.last_dequeue_time or 0.0, worker.last_heartbeat_time or 0.0)


def last_transition(worker: Worker) -> float:
    """When a worker's status changed last, Unix seconds; 0 for one that never had an attempt."""
    return max(worker.last_busy_time or 0.0, worker.last_idle_time or 0.0)
