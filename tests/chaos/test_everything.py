"""Everything at once: processes killed and paused, the server restarted, functions flushed, operators in the queue."""

from __future__ import annotations

import random
import sys

import pytest

from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.chaos.strikes import Chaos
from tests.support.chaos import events_later, steady_load, tally
from tests.support.chaos_processes import Crew
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.servers import Server

RUNNERS = 2
STRIKES = 12
MOMENTS = 60  # events between two strikes, at most


@pytest.mark.timeout(600)
async def test_everything_at_once(store: StreamStore, crew: Crew, server: Server) -> None:
    """Under all of it at random moments each rollout is finished once, with the spans of one attempt."""
    chaos = Chaos(store, crew, server, RUNNERS)
    async with steady_load(store) as ids:
        for _ in range(STRIKES):
            await events_later(store, random.randrange(1, MOMENTS))
            await chaos.strike()
    sys.stdout.write(f"strikes: {dict(chaos.done)}\n")
    chaos.wake()
    await wait_until_done(store, ids)
    assert await chaos.end_runners() == [0] * RUNNERS
    # A late span of a runner that slept revives its old attempt, until that is found lost once more.
    await wait_until_done(store, ids)
    assert await chaos.end_aggregator() == 0
    await check_invariants(store, ids, spans=SPANS)
    sys.stdout.write(f"{len(ids)} rollouts: {dict(await tally(store))}\n")
