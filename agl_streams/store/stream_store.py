"""`StreamStore`: the whole store API over Redis streams and functions."""

from __future__ import annotations

from agl_streams.store.dead import DeadMixin
from agl_streams.store.queries import QueriesMixin
from agl_streams.store.reports import ReportsMixin
from agl_streams.store.resources import ResourcesMixin
from agl_streams.store.retirement import RetirementMixin
from agl_streams.store.spans import SpansMixin
from agl_streams.store.statistics import StatisticsMixin
from agl_streams.store.waiting import WaitingMixin
from agl_streams.store.work import WorkMixin
from agl_streams.store.workers import WorkersMixin


class StreamStore(
    WorkMixin,
    ReportsMixin,
    DeadMixin,
    SpansMixin,
    QueriesMixin,
    ResourcesMixin,
    WorkersMixin,
    RetirementMixin,
    WaitingMixin,
    StatisticsMixin,
):
    """A store for one process and one event loop; any number of them share a namespace.

    Made by `connect`. Names, parameters and meanings follow Agent-lightning's store; what goes beyond it says so.
    """
