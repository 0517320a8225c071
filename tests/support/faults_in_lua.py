"""A build of the functions library whose `emit` raises an error at a chosen event."""

from __future__ import annotations

from agl_streams.library import Library, build, lua_files
from agl_streams.store import StreamStore

_PRELUDE = "_1_prelude.lua"
_EMIT = "function U.emit(ctx, kind, fields, payloads)\n"
_FAULT = """\
  local left = redis.call('GET', ctx.prefix .. 'live:request:fault')
  if left and redis.call('DECR', ctx.prefix .. 'live:request:fault') == -1 then
    error('a fault at this event')
  end
"""


def faulty_library() -> Library:
    """The library with the fault built in; it sleeps until `fail_after`."""
    sources = lua_files()
    assert _EMIT in sources[_PRELUDE]
    return build({**sources, _PRELUDE: sources[_PRELUDE].replace(_EMIT, _EMIT + _FAULT)})


async def use_faulty_library(store: StreamStore, events: int) -> None:
    """Make every shard of a store use it, and let it fail once, when so many events have been written."""
    chosen = faulty_library()
    for shard in range(store.shards):
        functions = store.functions(shard)
        functions.use(chosen)
        await functions.load()
        await store.connection.execute("SET", functions.keys.payload("live:request:fault"), events)
