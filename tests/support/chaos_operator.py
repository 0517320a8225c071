"""What an operator may do to the queue of a namespace by hand, with the best of intentions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from agl_streams.store import StreamStore

FUTURE: Final = 9_999_999_999_999  # milliseconds: the year 2286


async def entries_of(store: StreamStore) -> list[tuple[str, str]]:
    """The queue: entry ids and rollouts."""
    entries = cast("Any", await store.connection.execute("XRANGE", store.functions(0).keys.tasks, "-", "+"))
    return [(entry.decode(), flat[1].decode()) for entry, flat in entries]


async def trim(store: StreamStore, tasks: str) -> None:
    """Only the newest few are left."""
    await store.connection.execute("XTRIM", tasks, "MAXLEN", 5)


async def delete_entries(store: StreamStore, tasks: str) -> None:
    """Every other entry is gone."""
    entries = [entry for entry, _ in await entries_of(store)][::2]
    if entries:
        await store.connection.execute("XDEL", tasks, *entries)


async def delete_stream(store: StreamStore, tasks: str) -> None:
    """The stream is gone, and its group with it."""
    await store.connection.execute("DEL", tasks)


async def destroy_group(store: StreamStore, tasks: str) -> None:
    """The group is gone, and with it who holds what."""
    await store.connection.execute("XGROUP", "DESTROY", tasks, "runners")


async def skip_to_the_end(store: StreamStore, tasks: str) -> None:
    """The group believes that it has handed everything out."""
    await store.functions(0).load()
    await store.connection.execute("XGROUP", "SETID", tasks, "runners", "$")


async def delete_consumers(store: StreamStore, tasks: str) -> None:
    """Readers are gone with what they held: the server then forgets that it was handed out."""
    await store.functions(0).load()
    for flat in cast("Any", await store.connection.execute("XINFO", "CONSUMERS", tasks, "runners")):
        await store.connection.execute("XGROUP", "DELCONSUMER", tasks, "runners", flat[1])


async def acknowledge(store: StreamStore, tasks: str) -> None:
    """Entries in hand are acknowledged without having been begun."""
    await store.functions(0).load()
    pending = cast("Any", await store.connection.execute("XPENDING", tasks, "runners", "-", "+", 100))
    if pending:
        await store.connection.execute("XACK", tasks, "runners", *[entry[0] for entry in pending])


async def add_nonsense(store: StreamStore, tasks: str) -> None:
    """Entries that no rollout waits for, one of them without any."""
    await store.connection.execute("XADD", tasks, "*", "hello", "world")
    await store.connection.execute("XADD", tasks, "*", "rollout", "ro-nobody")


async def add_from_the_future(store: StreamStore, tasks: str) -> None:
    """An entry whose id is later than any event's for centuries: nothing can be added behind it."""
    await store.connection.execute("XADD", tasks, f"{FUTURE}-*", "hello", "world")


async def skip_to_the_future(store: StreamStore, tasks: str) -> None:
    """The group believes that it has handed out what will come for centuries."""
    await store.functions(0).load()
    await store.connection.execute("XGROUP", "SETID", tasks, "runners", f"{FUTURE}-0")


Hand = Callable[[StreamStore, str], Awaitable[None]]
HANDS: list[Hand] = [
    trim, delete_entries, delete_stream, destroy_group, skip_to_the_end, skip_to_the_future, delete_consumers,
    acknowledge, add_nonsense, add_from_the_future,
]  # fmt: skip
