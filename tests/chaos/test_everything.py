"""Everything at once: processes killed and paused, the server restarted, functions flushed, operators in the queue."""

from __future__ import annotations

import asyncio
import random
import sys

import pytest

from agl_streams.store import StreamStore
from tests.chaos.agents import SPANS
from tests.support.chaos import events_later, steady_load, tally
from tests.support.chaos_operator import HANDS
from tests.support.chaos_processes import Crew, Member
from tests.support.invariants import check_invariants, wait_until_done
from tests.support.servers import Server

RUNNERS = 2
STRIKES = 12
MOMENTS = 60  # events between two strikes, at most
SOAK_RUNNERS = 8
SOAK_STRIKES = 60
SOAK_CHAPTERS = 30  # about a minute each, in a namespace of its own

CHAPTERS = [
    pytest.param(RUNNERS, STRIKES, id="short"),
    *(
        pytest.param(SOAK_RUNNERS, SOAK_STRIKES, id=f"soak-{chapter}", marks=pytest.mark.soak)
        for chapter in range(SOAK_CHAPTERS)
    ),
]


class Chaos:
    """The strikes, each a method; what it kills it replaces, as a supervisor does."""

    def __init__(self, store: StreamStore, crew: Crew, server: Server, runners: int) -> None:
        self._store = store
        self._crew = crew
        self._server = server
        self._aggregator = crew.aggregator()
        self._runners = [crew.runner("some_work") for _ in range(runners)]
        self._sleeper: Member | None = None

    async def strike(self) -> str:
        """Do one of them; its name."""
        strikes = (self.kill_runner, self.kill_aggregator, self.restart, self.sleep, self.flush, self.operate)
        chosen = random.choice(strikes)
        await chosen()
        return chosen.__name__

    async def kill_runner(self) -> None:
        """kill -9 of a runner."""
        victim = self._runners.pop(random.randrange(len(self._runners)))
        if victim is self._sleeper:
            self._sleeper = None
        victim.kill()
        self._runners.append(self._crew.runner("some_work"))

    async def kill_aggregator(self) -> None:
        """kill -9 of the aggregator."""
        self._aggregator.kill()
        self._aggregator = self._crew.aggregator()

    async def restart(self) -> None:
        """kill -9 of the server, which loads its file."""
        await asyncio.to_thread(self._server.restart)

    async def sleep(self) -> None:
        """SIGSTOP of a runner; SIGCONT of the one that sleeps."""
        self.wake()
        self._sleeper = random.choice(self._runners)
        self._sleeper.pause()

    async def flush(self) -> None:
        """FUNCTION FLUSH."""
        await self._store.connection.execute("FUNCTION", "FLUSH")

    async def operate(self) -> None:
        """An operator's hand in the queue."""
        await random.choice(HANDS)(self._store, self._store.functions(0).keys.tasks)

    def wake(self) -> None:
        """SIGCONT of the runner that sleeps."""
        if self._sleeper is not None:
            self._sleeper.resume()
            self._sleeper = None

    async def end_runners(self) -> list[int | None]:
        """Let every runner finish what it does, those that slept included; their exit statuses."""
        return [await asyncio.to_thread(member.terminate) for member in self._runners]

    async def end_aggregator(self) -> int | None:
        """Let the aggregator end; its exit status."""
        return await asyncio.to_thread(self._aggregator.terminate)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("runners", "strikes"), CHAPTERS)
async def test_everything_at_once(store: StreamStore, crew: Crew, server: Server, runners: int, strikes: int) -> None:
    """Under all of it at random moments each rollout is finished once, with the spans of one attempt."""
    chaos = Chaos(store, crew, server, runners)
    done: list[str] = []
    async with steady_load(store) as ids:
        for _ in range(strikes):
            await events_later(store, random.randrange(1, MOMENTS))
            done.append(await chaos.strike())
    sys.stdout.write(f"strikes: {done}\n")
    chaos.wake()
    await wait_until_done(store, ids)
    assert await chaos.end_runners() == [0] * runners
    # A late span of a runner that slept revives its old attempt, until that is found lost once more.
    await wait_until_done(store, ids)
    assert await chaos.end_aggregator() == 0
    await check_invariants(store, ids, spans=SPANS)
    sys.stdout.write(f"{len(done)} strikes, {len(ids)} rollouts: {dict(await tally(store))}\n")
