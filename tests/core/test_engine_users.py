"""Several users of one data directory: they share a server, work in namespaces of their own, and outlive each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.processes import Process, ProcessGroup, is_alive
from tests.support.waiting import until_blocking

USERS = 3
ROLLOUTS = 30

# What a program does that shares the engine: work; where the server is gone, start it again, and go on.
USER = """
import asyncio, sys
import re
from pathlib import Path
from agl_streams import connection
from agl_streams.config import load_settings
from agl_streams.engine import Engine
from agl_streams.errors import StoreUnavailable
from agl_streams.store import StreamStore
from tests.support.waiting import until

connection.RETRY_FOR_S = 0.5  # who started the server is not coming back
directory, namespace, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

async def work(store):
    for number in range(count):
        rollout_id = f"r{number}"
        if await store.get_rollout_by_id(rollout_id) is None:
            await store.enqueue_rollout({"of": namespace}, rollout_id=rollout_id)
        if (await store.get_rollout_by_id(rollout_id)).status == "queuing":
            taken = await store.dequeue_rollout("same-worker", request_key=rollout_id)
            assert taken.input == {"of": namespace}, taken
        await store.update_attempt(rollout_id, "latest", "succeeded")
        if number == count // 2:
            print("half done", flush=True)
            await until((directory / "go").exists, what="the word to go on")
    rollouts = await store.query_rollouts(status_in=["succeeded"])
    assert len(rollouts) == count and all(one.input == {"of": namespace} for one in rollouts)
    assert set((await store.finished_counts()).values()) == {1}

while True:
    with Engine.start(directory) as engine:
        print("started" if engine.started else "joined", engine.pid, flush=True)
        try:
            async def main():
                async with await StreamStore.connect(engine.url, settings=load_settings(namespace=namespace)) as store:
                    await work(store)
            asyncio.run(main())
        except StoreUnavailable as error:
            print("away:", error, flush=True)
            continue
    break
print("all done", flush=True)
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist yet."""
    return tmp_path / "data"


def user(processes: ProcessGroup, data_dir: Path, number: int) -> Process:
    """A program that works in a namespace of its own until it is done, and rests when it is half done."""
    return processes.python(USER, str(data_dir), f"user-{number}", str(ROLLOUTS))


def starter_of(users: list[Process]) -> Process:
    """Who has started the server, once all are half done with it."""
    for one in users:
        one.printed("half done")
    (starter,) = [one for one in users if "started" in one.output]
    return starter


def test_users_of_one_directory_do_not_disturb_each_other(processes: ProcessGroup, data_dir: Path) -> None:
    """They start at once, use equal ids, and end when they like: who finds the server gone starts it again."""
    users = [user(processes, data_dir, number) for number in range(USERS)]
    starter_of(users)
    (data_dir / "go").touch()
    assert [one.wait() for one in users] == [0] * USERS
    assert all("all done" in one.output for one in users)


def test_a_killed_user_takes_nothing_from_the_others(processes: ProcessGroup, data_dir: Path) -> None:
    """Not even the one that had started the server: the others go on with what was there, and so may it."""
    users = [user(processes, data_dir, number) for number in range(USERS)]
    starter = starter_of(users)
    (server,) = re.findall(r"^started (\d+)$", starter.output, re.MULTILINE)
    starter.kill()
    # Its server ends a moment later: who went on at once could be done before.
    until_blocking(lambda: not is_alive(int(server)), what="the end of the server")
    (data_dir / "go").touch()
    others = [one for one in users if one is not starter]
    assert [one.wait() for one in others] == [0] * len(others)
    assert all("all done" in one.output for one in others)
    assert any("away: " in one.output for one in others)  # the next may have come when the server was there again
    again = user(processes, data_dir, users.index(starter))
    assert again.wait() == 0, again.output
