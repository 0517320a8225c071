"""The store: work goes in, attempts and spans come back, everything is an event.

Read in this order: ``base`` (connection and shards), ``work`` (rollouts and attempts), ``spans``, ``queries``,
``resources``, ``workers``, ``waiting``; ``stream_store`` joins them.
"""

from agl_streams.store.stream_store import StreamStore

__all__ = ["StreamStore"]
