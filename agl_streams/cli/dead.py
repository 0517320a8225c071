"""`dead`: the rollouts that were given up, because every runner that had one was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from agl_streams.cli.app import app
from agl_streams.cli.options import EXIT_ERROR, DataDir, JsonOutput, Namespace, RedisUrl
from agl_streams.cli.rollouts import dealt_with, show
from agl_streams.cli.terminal import (
    EVERYTHING,
    ServerUrl,
    Target,
    as_json,
    moment,
    remark,
    run,
    table,
    target_of,
    write_json,
)
from agl_streams.errors import InvalidRequest
from agl_streams.models import DeadLetter, Rollout

if TYPE_CHECKING:
    from agl_streams.connect import Store

INPUT_SHOWN: Final = 40

dead_app = typer.Typer(
    help="Rollouts that were given up: each of their runners was lost. They have failed, and wait here for you.",
    no_args_is_help=True,
)
app.add_typer(dead_app, name="dead")

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The rollouts.")]
All = Annotated[bool, typer.Option("--all", help="All that are on the list.")]
Deal: TypeAlias = "Callable[[Store, str], Awaitable[Rollout]]"


@dead_app.command("ls")
def list_dead(
    limit: Annotated[int, typer.Option(help="At most so many; -1 for all.")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Skip so many.")] = 0,
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """List them with the reason, in the order in which they were given up. With --json each is one line."""

    async def work(store: Store) -> int:
        page = await store.query_dead_letters(limit=limit, offset=offset)
        if json_output:
            for letter in page:
                write_json(letter)
            return 0
        table(("rollout", "reason", ">deliveries", "given up", "mode", "input"), map(_row, page))
        if len(page) < page.total - offset:
            remark(f"{len(page):,} of {page.total:,}; --limit and --offset show the others")
        return 0

    run(target_of(redis_url, namespace, data_dir, server), work)


def _row(letter: DeadLetter) -> tuple[object, ...]:
    rollout, shown = letter.rollout, as_json(letter.rollout.input)
    shown = shown if len(shown) <= INPUT_SHOWN else shown[: INPUT_SHOWN - 1] + "…"
    return letter.rollout_id, letter.reason, letter.deliveries, moment(rollout.end_time), rollout.mode, shown


dead_app.command("show", help="Show one as `agl-streams show` does: its input, and the attempts that were lost.")(show)


@dead_app.command()
def requeue(
    rollout_ids: Ids = None,
    every: All = False,
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """Put them on the queue again, as if new: with all their deliveries and attempts."""
    target = target_of(redis_url, namespace, data_dir, server)
    _deal(target, rollout_ids or [], every, json_output, lambda store, one: store.requeue_dead_letter(one))


@dead_app.command()
def drop(
    rollout_ids: Ids = None,
    every: All = False,
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """Take them off the list. The rollouts stay, and stay failed."""
    target = target_of(redis_url, namespace, data_dir, server)
    _deal(target, rollout_ids or [], every, json_output, lambda store, one: store.drop_dead_letter(one))


def _deal(target: Target, rollout_ids: list[str], every: bool, json_output: bool, deal: Deal) -> None:
    """Deal with each, and say what it has become. One that is no dead letter does not stop the others."""
    if bool(rollout_ids) == every:
        raise InvalidRequest("name the rollouts, or give --all; `agl-streams dead ls` lists them")

    async def work(store: Store) -> int:
        code = 0
        async for rollout_id in _all(store) if every else _named(rollout_ids):
            if await dealt_with(deal(store, rollout_id), json_output) is None:
                code = EXIT_ERROR
        return code

    run(target, work)


async def _named(rollout_ids: list[str]) -> AsyncIterator[str]:
    for rollout_id in rollout_ids:
        yield rollout_id


async def _all(store: Store) -> AsyncIterator[str]:
    """Those that are on the list now; one that comes back meanwhile is not dealt with twice."""
    for letter in await store.query_dead_letters(limit=EVERYTHING):
        yield letter.rollout_id
