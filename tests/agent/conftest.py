"""An attempt to run agents on, and a sink that remembers what reached it."""

from __future__ import annotations

import pytest

from agl_streams.agent import AttemptContext
from tests.support.spans import attempted_rollout
from tests.support.spans_stored import Stored


@pytest.fixture
async def stored() -> Stored:
    """Where the spans of the attempt end up."""
    return Stored()


@pytest.fixture
async def context(stored: Stored) -> AttemptContext:
    """An attempt whose task is ``{"q": 2}``, without resources."""
    return AttemptContext(attempted_rollout({"q": 2}), None, stored)
