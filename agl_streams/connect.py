"""One way to a store, whatever it is: beside the engine, or behind a server."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import urlsplit

from agl_streams.client import HttpRolloutConsumer, StoreClient
from agl_streams.config import Settings, load_settings
from agl_streams.consumer import RolloutConsumer
from agl_streams.errors import ConfigError
from agl_streams.store import StreamStore

Store: TypeAlias = StreamStore | StoreClient
Consumer: TypeAlias = RolloutConsumer | HttpRolloutConsumer


async def connect(url: str | None = None, *, settings: Settings | None = None, namespace: str | None = None) -> Store:
    """The store at a URL.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://`` gives a `StreamStore`, ``http://`` or ``https://`` a
            `StoreClient`. None takes ``settings.redis_url`` (``AGL_REDIS_URL``).
        namespace: None takes ``settings.namespace``. A server has one of its own: with it, none can be chosen.

    Raises:
        ConfigError: no URL anywhere, a bad one, or a namespace for a server.
        AglError: the store cannot be used; see `StreamStore.connect` and `StoreClient.connect`.
    """
    settings = settings or load_settings()
    if url is None or urlsplit(url).scheme not in ("http", "https"):
        return await StreamStore.connect(url, settings=settings, namespace=namespace)
    if namespace is not None:
        raise ConfigError(
            f"namespace {namespace!r} cannot be chosen at {url}: a server serves the one it was started with"
        )
    return await StoreClient.connect(url, settings=settings)


def consumer_of(store: Store, worker_id: str, lease_seconds: float | None = None) -> Consumer:
    """What takes rollouts from a store for one worker process; see `RolloutConsumer`."""
    if isinstance(store, StreamStore):
        return RolloutConsumer(store, worker_id, lease_seconds)
    return HttpRolloutConsumer(store, worker_id, lease_seconds)
