"""`ls`, `show` and `cancel`: look at rollouts, and end them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agl_streams import clock
from agl_streams.cli.app import app
from agl_streams.cli.options import EXIT_ERROR, EXIT_MISSED, DataDir, JsonOutput, Namespace, RedisUrl
from agl_streams.cli.terminal import (
    EVERYTHING,
    ServerUrl,
    as_json,
    duration,
    moment,
    printable,
    remark,
    run,
    table,
    target_of,
    write,
    write_json,
)
from agl_streams.errors import Conflict, NotFound
from agl_streams.models import Attempt, AttemptedRollout, DeadLetter, PaginatedResult, Rollout, Span
from agl_streams.semconv import REASON

if TYPE_CHECKING:
    from agl_streams.connect import Store
    from agl_streams.projections import RolloutSums

PAGE: Final = 200
"""Rollouts that are read at a time: a few hundred inputs are held in memory, never all."""
SUMS_AT_ONCE: Final = 16
LAST_SPANS: Final = 10
SHOWN_CHARACTERS: Final = 2000
"""Of an input: more than that nobody reads on a terminal."""
HEADINGS: Final = ("rollout", "status", ">attempts", "mode", "start", ">duration", ">reward", ">spans")


@app.command("ls")
def list_rollouts(
    status: Annotated[list[str] | None, typer.Option(help="Of this status; may be repeated.")] = None,
    mode: Annotated[str | None, typer.Option(help="Of this mode: train, val or test.")] = None,
    contains: Annotated[str | None, typer.Option("--id", metavar="PART", help="Whose id contains this.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many; -1 for all.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip so many.")] = 0,
    sort: Annotated[str, typer.Option(help="A field: start_time, end_time, status, mode, rollout_id.")] = "start_time",
    ascending: Annotated[bool, typer.Option("--ascending", help="Oldest, or smallest, first.")] = False,
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """List rollouts, newest first. With --json each is one line, with what its spans add up to.

    Spans and rewards are as far as the aggregator has come.
    """
    filters: dict[str, Any] = {
        "status_in": status or None,
        "rollout_id_contains": contains,
        "sort_by": sort,
        "sort_order": "asc" if ascending else "desc",
    }

    async def work(store: Store) -> int:
        rows: list[tuple[object, ...]] = []
        total = 0
        async for batch, of in _batches(store, filters, mode, limit, offset):
            total = of
            sums = await _sums(store, batch)
            if json_output:
                for one, its_sums in zip(batch, sums, strict=True):
                    write_json({**one.model_dump(), "sums": its_sums})
            else:
                rows += map(_row, batch, sums)
        if not json_output:
            table(HEADINGS, rows)
            if mode is None and len(rows) < total - offset:
                remark(f"{len(rows):,} of {total:,}; --limit and --offset show the others")
        return 0

    run(target_of(redis_url, namespace, data_dir, server), work)


async def _batches(
    store: Store, filters: dict[str, Any], mode: str | None, limit: int, offset: int
) -> AsyncIterator[tuple[list[Rollout], int]]:
    """The rollouts asked for in bounded batches, each with the number of all. The store knows no filter by mode."""
    skip, left = (0, limit) if mode is None else (offset, limit)
    at = offset if mode is None else 0
    seen: set[str] = set()  # one that is enqueued meanwhile moves the others to the next page
    while True:
        size = PAGE if left == EVERYTHING or (mode is not None and left > 0) else min(PAGE, left)
        page: PaginatedResult[Rollout] = await store.query_rollouts(**filters, limit=size, offset=at)
        found = [one for one in page if one.rollout_id not in seen and mode in (None, one.mode)]
        seen.update(one.rollout_id for one in page)
        found, skip = found[skip:], max(0, skip - len(found))
        wanted = found if left == EVERYTHING else found[:left]
        left -= 0 if left == EVERYTHING else len(wanted)
        yield wanted, page.total
        at += size
        if len(page) < size or not left:
            return


async def _sums(store: Store, rollouts: list[Rollout]) -> list[RolloutSums]:
    places = asyncio.Semaphore(SUMS_AT_ONCE)

    async def one(rollout: Rollout) -> RolloutSums:
        async with places:
            return await store.rollout_sums(rollout.rollout_id)

    return await asyncio.gather(*map(one, rollouts))


def _row(rollout: Rollout, sums: RolloutSums) -> tuple[object, ...]:
    attempts = rollout.attempt.sequence_id if isinstance(rollout, AttemptedRollout) else 0
    return (
        rollout.rollout_id, rollout.status, attempts, rollout.mode, moment(rollout.start_time),
        duration((rollout.end_time or clock.now_s()) - rollout.start_time), sums.reward, sums.spans,
    )  # fmt: skip


@app.command()
def show(
    rollout_id: Annotated[str, typer.Argument(metavar="ID", help="The rollout.")],
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """Show a rollout: its input, its attempts, its sums and its last spans. With --json it is one document."""

    async def work(store: Store) -> int:
        rollout = await store.get_rollout_by_id(rollout_id)
        if rollout is None:
            raise NotFound(f"there is no rollout {rollout_id!r}: `agl-streams ls --id PART` finds ids by a part")
        sums, attempts, spans, letter = await asyncio.gather(
            store.rollout_sums(rollout_id),
            store.query_attempts(rollout_id),
            store.query_spans(rollout_id, limit=LAST_SPANS, sort_order="desc"),
            store.get_dead_letter(rollout_id),
        )
        if json_output:
            newest = {"total": spans.total, "last": list(reversed(spans))}
            write_json({"rollout": rollout, "sums": sums, "attempts": attempts.items, "spans": newest, "dead": letter})
        else:
            _show(rollout, sums, letter)
            _show_attempts(list(attempts))
            _show_spans(list(reversed(spans)), spans.total)
        return 0

    run(target_of(redis_url, namespace, data_dir, server), work)


def _show(rollout: Rollout, sums: RolloutSums, letter: DeadLetter | None) -> None:
    config = rollout.config
    facts: dict[str, object] = {
        "rollout": rollout.rollout_id,
        "status": rollout.status,
        "given up": letter and f"{letter.reason}, after {letter.deliveries} deliveries; see `agl-streams dead --help`",
        "mode": rollout.mode,
        "resources": rollout.resources_id,
        "start": moment(rollout.start_time),
        "end": moment(rollout.end_time),
        "duration": duration((rollout.end_time or clock.now_s()) - rollout.start_time),
        "attempts": f"at most {config.max_attempts}; again after: {', '.join(config.retry_condition) or 'nothing'}",
        "limits": f"timeout {_limit(config.timeout_seconds)}, silence {_limit(config.unresponsive_seconds)}",
        "sums": f"{sums.spans} spans, {sums.model_calls} model calls, {sums.prompt_tokens} + {sums.completion_tokens} "
        f"tokens, {sums.rewards} rewards, {sums.incomplete} calls captured incompletely",
        "reward": sums.reward,
        "input": _compact(rollout.input),
        "metadata": _compact(rollout.metadata) if rollout.metadata else None,
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        if value is not None:
            write(f"{name:{width}}  {printable(value)}")


def _limit(seconds: float | None) -> str:
    return "none" if seconds is None else duration(seconds)


def _compact(value: Any) -> str:
    text = as_json(value)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}… ({len(text):,} characters; --json shows all)"


def _show_attempts(attempts: list[Attempt]) -> None:
    if not attempts:
        return
    write("")
    now = clock.now_s()
    table(
        (">#", "attempt", "status", "worker", "start", ">duration", "reason"),
        [
            (
                one.sequence_id, one.attempt_id, one.status, one.worker_id, moment(one.start_time),
                duration((one.end_time or one.last_heartbeat_time or now) - one.start_time),
                (one.metadata or {}).get(REASON),
            )
            for one in attempts
        ],
    )  # fmt: skip


def _show_spans(spans: list[Span], total: int) -> None:
    if not spans:
        return
    write("")
    if total > len(spans):
        write(f"the last {len(spans)} of {total:,} spans")
    table(
        (">#", "span", "name", "attempt", ">duration", "status"),
        [(one.sequence_id, one.span_id, one.name, one.attempt_id, _took(one), one.status.status_code) for one in spans],
    )


def _took(span: Span) -> str | None:
    if span.start_time is None or span.end_time is None:
        return None
    return duration(span.end_time - span.start_time)


@app.command()
def cancel(
    rollout_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The rollouts.")],
    reason: Annotated[str, typer.Option(help="Why: it is what their owners will read.")],
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """End rollouts on purpose: open attempts fail, and their agents are stopped.

    Prints what each has become. Exit code 1: one had finished in another way before. 2: one does not exist.
    """

    async def work(store: Store) -> int:
        code = 0
        for rollout_id in rollout_ids:
            rollout = await dealt_with(store.cancel_rollout(rollout_id, reason), json_output)
            if rollout is None:
                code = EXIT_ERROR
            elif rollout.status != "cancelled":
                code = code or EXIT_MISSED
        return code

    run(target_of(redis_url, namespace, data_dir, server), work)


async def dealt_with(dealing: Awaitable[Rollout], json_output: bool) -> Rollout | None:
    """What a rollout has become, after it is printed; None when it is none that can be dealt with so, which is told."""
    try:
        rollout = await dealing
    except (NotFound, Conflict) as error:
        remark(f"error: {error}")
        return None
    if json_output:
        write_json(rollout)
    else:
        write(f"{rollout.rollout_id} {rollout.status}")
    return rollout
