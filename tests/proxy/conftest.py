"""Fixtures of the proxy's tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.proxy.support import Proxy, served
from tests.support.engine_standin import EngineStandin, engine_standin


@pytest.fixture
async def engine() -> AsyncGenerator[EngineStandin]:
    """A stand-in for the inference server."""
    async with engine_standin() as standin:
        yield standin


@pytest.fixture
async def proxy(engine: EngineStandin) -> AsyncGenerator[Proxy]:
    """A proxy with default options, in front of the stand-in."""
    async with served(engine) as proxy:
        yield proxy
