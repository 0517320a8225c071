"""The store over HTTP: the API of `StreamStore`, against a server of ours."""

from agl_streams.client.consumer import HttpRolloutConsumer
from agl_streams.client.store_client import StoreClient
from agl_streams.client.tail import LogEvent

__all__ = ["HttpRolloutConsumer", "LogEvent", "StoreClient"]
