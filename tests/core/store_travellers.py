"""What stores do that travel to other processes: a program that the tests run.

Arguments: how processes are started (spawn, fork, forkserver), and the URL of a store of any kind.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import sys
from multiprocessing.process import BaseProcess

from agl_streams.connect import Store, connect, consumer_of
from agl_streams.errors import WrongLoop
from agl_streams.store import StreamStore

CONTEXTS = {
    "spawn": multiprocessing.get_context("spawn"),
    "fork": multiprocessing.get_context("fork"),
    "forkserver": multiprocessing.get_context("forkserver"),
}


def tell(line: str) -> None:
    """For the test, which reads it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def work_on(pickled: bytes) -> None:
    """In the other process: all that a runner and its client do, with a store that came by pickle."""
    store: Store = pickle.loads(pickled)
    asyncio.run(_work(store))


async def _work(store: Store) -> None:
    async with store:
        # Waiting comes first: it needs a connection of its own before anything else was asked for.
        assert not await store.wait_for_rollouts(rollout_ids=["of nobody"], timeout=0.01)
        rollout = await store.enqueue_rollout({"pid": os.getpid()}, rollout_id="made-there")
        taken = await store.dequeue_rollout("worker-there")
        assert taken is not None
        waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=60))
        await store.update_attempt(rollout.rollout_id, "latest", "succeeded")
        assert [one.status for one in await waiting] == ["succeeded"]
        if isinstance(store, StreamStore):
            await store.open()
        await store.enqueue_rollout("for a blocked reader")
        consumer = consumer_of(store, "reader-there")
        assert [one.input for one in await consumer.next(1)] == ["for a blocked reader"]
        await consumer.close()


def use_inherited(store: StreamStore) -> None:
    """In a fork: the store itself, which is the parent's."""

    async def use() -> None:
        try:
            await store.enqueue_rollout("not here")
        except WrongLoop as error:
            tell(f"refused: {error}")

    asyncio.run(use())


async def main(method: str, url: str) -> None:
    """Send a store on its way while it is in use, and use it again."""
    context = CONTEXTS[method]
    async with await connect(url) as store:
        before = await store.enqueue_rollout("before", rollout_id="before")
        assert await store.dequeue_rollout() is not None
        # It waits, with a reader of its own, while the process forks.
        waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=["before"], timeout=60))
        assert await store.get_rollout_by_id("before") is not None
        children: list[BaseProcess] = [context.Process(target=work_on, args=(pickle.dumps(store),))]
        if method == "fork" and isinstance(store, StreamStore):
            children.append(context.Process(target=use_inherited, args=(store,)))
        for child in children:
            child.start()
            await asyncio.to_thread(child.join)
            tell(f"child ended with {child.exitcode}")
        there = await store.get_rollout_by_id("made-there")
        assert there is not None
        tell(f"made by another process: {there.input['pid'] not in (None, os.getpid())}, {there.status}")
        await store.update_attempt(before.rollout_id, "latest", "succeeded")
        assert [one.rollout_id for one in await waiting] == ["before"]
        tell("the store here goes on")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
