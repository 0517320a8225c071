"""What strikes the processes of a namespace; what is killed is replaced, as a supervisor does."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from agl_streams.store import StreamStore
from tests.support.chaos_operator import HANDS
from tests.support.chaos_processes import Crew, Member
from tests.support.servers import Server


class Chaos:
    """An aggregator and runners, and the strikes, each a method.

    Attributes:
        done: how often each has struck.
    """

    def __init__(self, store: StreamStore, crew: Crew, server: Server, runners: int) -> None:
        self.done: Counter[str] = Counter()
        self._store = store
        self._crew = crew
        self._server = server
        self._aggregator = crew.aggregator()
        self._runners = [self.start_runner() for _ in range(runners)]
        self._sleeper: Member | None = None

    def strikes(self) -> list[Callable[[], Awaitable[None]]]:
        """All of them."""
        return [self.kill_runner, self.kill_aggregator, self.restart, self.sleep, self.flush, self.operate]

    def start_runner(self) -> Member:
        """One more."""
        return self._crew.runner("some_work")

    async def strike(self) -> None:
        """Do one of them."""
        chosen = random.choice(self.strikes())
        await chosen()
        self.done[getattr(chosen, "__name__", repr(chosen))] += 1

    async def kill_runner(self) -> None:
        """kill -9 of a runner."""
        victim = self._runners.pop(random.randrange(len(self._runners)))
        if victim is self._sleeper:
            self._sleeper = None
        victim.kill()
        self._runners.append(self.start_runner())

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
