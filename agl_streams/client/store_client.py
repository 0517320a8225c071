"""`StoreClient`: the whole store API over HTTP."""

from __future__ import annotations

from agl_streams.client.dead import DeadCalls
from agl_streams.client.queries import QueryCalls
from agl_streams.client.spans import SpanCalls
from agl_streams.client.tail import TailCalls
from agl_streams.client.work import WorkCalls


class StoreClient(WorkCalls, DeadCalls, SpanCalls, QueryCalls, TailCalls):
    """A store behind a server, as ``agl-streams serve`` runs it. Names, parameters and meanings are `StreamStore`'s.

    It may be used from any number of event loops and threads, and pickled. Made by `connect`; `close` it in each event
    loop that has used it. Errors are those of `StreamStore`; a server that is away is tried for
    ``agl_streams.client.transport.REPEAT_FOR_S``.
    """
