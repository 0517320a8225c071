"""A page of rollouts straight from the indexes: what a list of the newest, or of one status, needs, and no more.

The indexes are sorted sets in order of creation. A page reads as many members as it shows and skips; it never looks at
the rest, so it takes the same time with a million rollouts as with none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from agl_streams.functions import ShardFunctions
from agl_streams.models import PaginatedResult, Rollout
from agl_streams.projections import ROLLOUT, View, decode_rollout
from agl_streams.store.selection import NO_LIMIT, Page

TIES: Final = 128  # rollouts of one enqueue call share a time; a page from the end must see the whole group to order it

_START: Final = ROLLOUT.index("start")
_NUMBER: Final = ROLLOUT.index("n")


def creation(view: View) -> tuple[int, int]:
    """Creation time, then creation number: the first orders shards among each other, the second ties within one."""
    return int(view[1][_START]), int(view[1][_NUMBER])


@dataclass(frozen=True, slots=True)
class Index:
    """One sorted set of rollouts, and where it lives."""

    functions: ShardFunctions
    key: str


def serves(page: Page) -> bool:
    """Whether the indexes are in the order that the page wants: creation, which is also the order of start times."""
    return page.limit != NO_LIMIT and page.sort_by in (None, "start_time")


async def indexed_page(indexes: Sequence[Index], page: Page) -> PaginatedResult[Rollout]:
    """The page, with the number of all members as its total."""
    totals = await asyncio.gather(*(_size(index) for index in indexes))
    newest_first = page.sort_by is not None and page.sort_order == "desc"
    views = await (_newest(indexes, page) if newest_first else _oldest(indexes, page))
    items = [decode_rollout(view) for view in views]
    return PaginatedResult(items=items, limit=page.limit, offset=page.offset, total=sum(totals))


async def _oldest(indexes: Sequence[Index], page: Page) -> list[View]:
    end = page.offset + page.limit
    views = await _read(indexes, end, reverse=False)
    return sorted(views, key=creation)[page.offset : end]


async def _newest(indexes: Sequence[Index], page: Page) -> list[View]:
    """Newest time first, and within one time in order of creation, as a stable sort gives it."""
    end = page.offset + page.limit
    count = end + TIES
    while True:
        views = sorted(await _read(indexes, count, reverse=True), key=creation)
        views.sort(key=lambda view: -creation(view)[0])
        # The oldest group that was read may lack members; it must not reach into the page.
        complete = len(views) < count or creation(views[end - 1])[0] > creation(views[-1])[0]
        if complete:
            return views[page.offset : end]
        count *= 2


async def _size(index: Index) -> int:
    return cast("int", await index.functions.execute("ZCARD", index.key))


async def _read(indexes: Sequence[Index], count: int, *, reverse: bool) -> list[View]:
    """The first or last ``count`` members of each index."""
    views: list[View] = []
    for index in indexes:
        ids = cast(
            "list[bytes]",
            await index.functions.execute("ZRANGE", index.key, 0, count - 1, *(["REV"] if reverse else [])),
        )
        found = await index.functions.read_rollouts([rollout_id.decode() for rollout_id in ids])
        views += [view for view in found if view]
    return views
