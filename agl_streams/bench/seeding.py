"""Rollouts by the million, written as a rebuild writes them: recorded events, applied by the real `apply`.

Through the commands that runners call, a million rollouts take three times as long; what comes out is the same state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from agl_streams import bodies, clock
from agl_streams.bodies import RolloutBody
from agl_streams.events import Event
from agl_streams.functions import REPLAY_LIMIT
from agl_streams.store import StreamStore
from agl_streams.wire import Arg

STEP_US: Final = 1000  # from one seeded rollout to the next: each has a start time of its own
EVENTS: Final = 3  # of each: it is made, its attempt begins, and something becomes of that
LEASE_US: Final = "3600000000"  # an hour: no seeded attempt is overdue while it is measured

Recorded = tuple[str, list[str], list[Arg]]
Ending = Callable[[dict[str, str]], tuple[str, dict[str, str]]]
"""From the ids of an attempt to the type and the fields of its last event."""


def finished(ids: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The attempt succeeds, and the rollout with it."""
    return "attempt_ended", {**ids, "status": "succeeded", "to": "succeeded", "lost": "0"}


def running(ids: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The attempt runs."""
    return "attempt_running", {**ids, "status": "running", "to": "running"}


def seeded_id(number: int) -> str:
    """The id of the rollout that was seeded with this number, from 0."""
    return f"ro-{number:012x}"


async def seed(store: StreamStore, count: int, ending: Ending) -> None:
    """Write rollouts without spans, each with one attempt, into an empty namespace of one shard."""
    functions = store.functions(0)
    events = _events(count, ending, clock.now_us() - (count + 1) * STEP_US)
    batch = _next(events)
    while batch:
        writing = asyncio.create_task(functions.replay(batch))
        await clock.sleep_s(0)  # the batch is on its way, and the server is at work while the next one is made
        batch = _next(events)
        await writing


async def arm(store: StreamStore, count: int) -> None:
    """Give what `running` has left open its lease and its deadline, as a rebuild does."""
    await store.functions(0).arm([seeded_id(number) for number in range(count)])


def _next(events: Iterator[Recorded]) -> list[Recorded]:
    return list(itertools.islice(events, REPLAY_LIMIT))


def _events(count: int, ending: Ending, first_us: int) -> Iterator[Recorded]:
    for number in range(count):
        rollout_id, time_us = seeded_id(number), first_us + number * STEP_US
        ids = {"rollout": rollout_id, "attempt": f"at-{number:08x}"}
        body = bodies.encode_rollout(RolloutBody({"task": number}, None, None), 1000)
        made = {"rollout": rollout_id, "body": "1", "max": "1"}
        begun = {**ids, "seq": "1", "to": "preparing", "lease": LEASE_US}
        steps = (("rollout_started", made), ("attempt_started", begun), ending(ids))
        for place, (kind, fields) in enumerate(steps):
            event = Event(f"{time_us // 1000}-{place}", kind, number * EVENTS + place + 1, time_us, fields)
            payloads: list[Arg] = [f"body:{rollout_id}:1", body] if place == 0 else []
            yield event.id, event.flat(), payloads
