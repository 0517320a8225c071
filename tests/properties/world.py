"""The real store and its model side by side: each operation is done on both, then the two are compared."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from agl_streams.config import Settings, load_settings
from agl_streams.connection import Arg
from agl_streams.fold import fold
from agl_streams.models import AttemptedRollout, Rollout
from agl_streams.replay import read_history, rebuild
from agl_streams.store import StreamStore
from agl_streams.sums import sums_of
from tests.support.faulty import NO_FAULT, Crashed, Fault, FaultyConnection, command_of
from tests.support.leaks import remove_namespace
from tests.support.model import Model
from tests.support.model_rows import US_PER_S
from tests.support.raw import Raw
from tests.support.rebuild import assert_equal_content, durable_content, folded_content

T = TypeVar("T")
Call = tuple[Arg, ...]

BEGIN = 1_700_000_000 * US_PER_S
NEVER_MS = 10**9  # no entry was handed over that long ago
STORES = 2
# Commands whose late duplicate must change nothing. The others extend a lease or look at the time by their nature.
VOID_WHEN_LATE = frozenset(
    {"enqueue", "claim", "begin", "release", "append_spans", "update_attempt", "update_rollout", "cancel",
     "requeue_dead", "drop_dead", "start_rollout", "start_attempt", "resources"}
)  # fmt: skip
CLAIM_IDS_AT = 8  # FCALL, function, number of keys, key, clock, worker, lease, token, then attempt ids
_numbers = itertools.count()


class World:
    """One namespace, two stores on it, and the model. Synchronous: it owns an event loop.

    Attributes:
        stores: each with a `FaultyConnection`; they read the model's clock.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.new_event_loop()
        self.settings = load_settings(redis_url=url, namespace=f"p-{next(_numbers)}", max_deliveries=2)
        self._rebuilt = f"{self.settings.namespace}-rebuilt"
        self.raw = Raw(url)
        self.model = Model(
            clock=BEGIN,
            lease=round(self.settings.lease_seconds * US_PER_S),
            max_deliveries=self.settings.max_deliveries,
        )
        self.stores = [self.run(self._open(self.settings)) for _ in range(STORES)]
        self.keys = self.stores[0].functions(0).keys

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop."""
        return self._loop.run_until_complete(work)

    def connection(self, at: int) -> FaultyConnection:
        """The connection of a store."""
        return cast("FaultyConnection", self.stores[at].connection)

    def call(
        self, at: int, fault: Fault, operation: Callable[[StreamStore], Awaitable[T]]
    ) -> tuple[T | None, int, bool]:
        """Do an operation of one store, with a fault.

        Returns:
            The answer (None after a crash), how many writing calls were carried out, and whether it ended in a crash.
        """
        connection = self.connection(at)
        connection.set_fault(fault)
        try:
            return self.run(_await(operation(self.stores[at]))), connection.done, False
        except Crashed:
            return None, connection.done, True
        finally:
            connection.fault = NO_FAULT

    def voidable(self) -> list[Call]:
        """Calls that were carried out, whose late duplicate must change nothing."""
        sent = [pair for at in range(STORES) for pair in self.connection(at).sent]
        return [call for call, reply in sent if command_of(call) in VOID_WHEN_LATE and not _wants_more(call, reply)]

    def send_again(self, at: int, call: Call) -> None:
        """A duplicate of a call arrives late."""
        self.run(self.connection(at).send_again(call, self.model.clock))

    def rollouts(self) -> list[Rollout]:
        """What there is, in order of creation."""
        return list(self.run(self.stores[0].query_rollouts()))

    def newest_attempt(self, rollout_id: str) -> str:
        """The id that the store gave to the newest attempt of a rollout."""
        attempt = self.run(self.stores[0].get_latest_attempt(rollout_id))
        return attempt.attempt_id if attempt else "none"

    def queue(self) -> list[tuple[str, str]]:
        """The queue as it is: entry id and rollout, oldest first."""
        return [(entry.decode(), fields[1].decode()) for entry, fields in self._entries(self.keys.tasks)]

    def deadlines(self) -> list[tuple[str, str]]:
        """Attempts in the order in which the watchdog looks at them."""
        members = self.raw.execute("ZRANGE", self.keys.payload("live:deadlines"), 0, -1)
        return [cast("tuple[str, str]", tuple(member.decode().split(":"))) for member in members]

    def check(self) -> None:
        """Everything that anybody can see is as the model has it."""
        self.run(self._check_public())
        model = self.model
        assert [rollout_id for _, rollout_id in self.queue()] == [entry.rollout_id for entry in model.queue]
        pending = self.raw.execute("XPENDING", self.keys.tasks, "runners", "-", "+", 1000)
        held = {entry[0].decode(): entry[1].decode() for entry in pending}
        assert [held.get(entry) for entry, _ in self.queue()] == [entry.holder for entry in model.queue]
        assert len(held) == len([entry for entry in model.queue if entry.holder])
        assert self._pairs(self.keys.finished) == model.finished
        assert self._pairs(self.keys.dead) == model.dead

    def check_sums(self) -> None:
        """What was folded is what the spans of each rollout add up to."""
        for rollout in self.model.rollouts.values():
            sums = self.run(self.stores[0].rollout_sums(rollout.rollout_id))
            shares = [sums_of(span.attributes) for attempt in rollout.attempts for span in attempt.spans.values()]
            assert sums.spans == len(shares)
            assert sums.model_calls == sum(share.model_calls for share in shares)
            assert sums.completion_tokens == sum(share.completion_tokens for share in shares)
            assert sums.rewards == sum(share.rewards for share in shares)

    def close(self, *, check_rebuild: bool) -> None:
        """Compare with a rebuild and with the fold in Python, and clear up."""
        if check_rebuild:
            self.run(self._check_rebuild())
        for store in self.stores:
            self.run(store.close())
        self.raw.close()
        for namespace in (self.settings.namespace, self._rebuilt):
            remove_namespace(self.url, namespace)
        self._loop.close()

    async def _open(self, settings: Settings) -> StreamStore:
        connection = cast("FaultyConnection", await FaultyConnection.open(self.url, settings=settings))
        store = StreamStore(self.url, settings, connection)
        await store.functions(0).load()
        store.functions(0).clock_us = lambda: self.model.clock
        return store

    async def _check_public(self) -> None:
        store, model = self.stores[0], self.model
        real = {rollout.rollout_id: rollout for rollout in await store.query_rollouts()}
        assert list(real) == list(model.rollouts)
        for rollout_id, rollout in model.rollouts.items():
            assert _as_dict(real[rollout_id]) == _as_dict(rollout.public())
            attempts = list(await store.query_attempts(rollout_id))
            assert attempts == [attempt.public() for attempt in rollout.attempts]
        workers = [model.workers[worker].public(worker) for worker in sorted(model.workers)]
        assert list(await store.query_workers()) == workers
        assert list(await store.query_resources()) == list(model.resources.values())

    async def _check_rebuild(self) -> None:
        source, shards = self.stores[0], self.settings.shards
        await source.settle()
        before = durable_content(self.url, self.settings.namespace)
        history = [one async for one in read_history(source, 0)]
        folded = folded_content(history, fold(event for event, _ in history), 0, shards)
        assert_equal_content(before, folded, ("the server", "the fold in Python"))
        settings = load_settings(redis_url=self.url, namespace=self._rebuilt)
        async with await StreamStore.connect(settings=settings) as target:
            await rebuild(source, target)
        assert_equal_content(before, durable_content(self.url, settings.namespace), ("before", "rebuilt"))

    def _entries(self, key: str) -> list[Any]:
        return self.raw.execute("XRANGE", key, "-", "+")

    def _pairs(self, key: str) -> list[tuple[str, str]]:
        """Rollout and its status, or reason, of each entry of a stream."""
        return [(fields[1].decode(), fields[3].decode()) for _, fields in self._entries(key)]


async def _await(work: Awaitable[T]) -> T:
    return await work


def _wants_more(call: Call, reply: list[Any]) -> bool:
    """Whether a claim was given less than it asked for: its repeat may be given the rest."""
    return command_of(call) == "claim" and len(reply) - 1 < len(call) - CLAIM_IDS_AT


def _as_dict(rollout: Rollout) -> dict[str, Any]:
    """For a readable difference."""
    return rollout.model_dump() | {"kind": "attempted" if isinstance(rollout, AttemptedRollout) else "plain"}
