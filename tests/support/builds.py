"""Builds of the functions library as another release would have them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from agl_streams import library as ours
from agl_streams.library import SCHEMA, Library, library
from agl_streams.store import StreamStore

NEWER: int = SCHEMA + 1
"""The schema of the release after this one."""


def newer_library() -> Library:
    """The functions of the release after this one: they write a newer schema, and have other names."""
    mine = library()
    before, after = (f"local SCHEMA, SEQUENCE_GAP = {schema}, " for schema in (SCHEMA, NEWER))
    assert before in mine.source
    source = mine.source.replace(before, after)
    name = f"agl_{NEWER}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    return Library(name, source.replace(mine.name, name), mine.commands)


async def become_newer(store: StreamStore) -> None:
    """From now on the store is one of the newer release."""
    for shard in range(store.shards):
        store.functions(shard).use(newer_library())
    await store.open()


def live_as_newer(work: Callable[[], None]) -> None:
    """The whole life of a process of the newer release. Only for a process that has not used the functions yet."""
    ours.SCHEMA = NEWER  # what a release changes
    library.cache_clear()
    work()
