"""What the tests of the store share: the server's time in their hands."""

from __future__ import annotations

import pytest

from agl_streams.store import StreamStore
from tests.support.timeline import Timeline


@pytest.fixture
async def time(store: StreamStore) -> Timeline:
    """The server's time, with a watchdog that has been there all along."""
    return await Timeline(store).watched()
