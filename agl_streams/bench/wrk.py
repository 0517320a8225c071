"""P9's second half: two server processes over one, under a load generator in C that leaves the cores to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import shutil
import tempfile
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from agl_streams.bench.report import US_PER_S, Row, paired
from agl_streams.bench.routes import AGL, Request, enqueue
from agl_streams.bench.served import HEALTH, Served, Spent, serving
from agl_streams.bench.work import opened
from agl_streams.store import StreamStore

FEW: Final = 32
MANY: Final = 128
"""Connections. With few of them each process finds less to do at a time, and a request costs it and the engine more."""
SECONDS: Final = 2  # wrk takes whole ones
TARGET: Final = 1.25
_RATE: Final = re.compile(r"Requests/sec:\s+([\d.]+)")
_COUNT: Final = re.compile(r"(\d+) requests in ")
_REFUSED: Final = re.compile(r"Non-2xx or 3xx responses: \d+|Socket errors: .*")


class Kind(NamedTuple):
    """What wrk sends, and over how many connections."""

    what: str
    request: Request
    connections: int
    target: float | None


class Run(NamedTuple):
    """One run of wrk: requests per second, and the processor time that one of them took of the server and of wrk."""

    rate: float
    spent: Spent
    wrk_s: float


async def two_over_one(store: StreamStore, *, pairs: int, seconds: int = SECONDS, most: int | None = None) -> list[Row]:
    """A row for each kind of request, or one that says that wrk is not installed.

    Args:
        most: kinds to measure; None: all.
    """
    if shutil.which("wrk") is None:
        return [Row("P9", "two server processes over one: wrk is not installed: apt-get install wrk", None, TARGET)]
    kinds = _kinds((await opened(store)).rollout_id)[:most]
    async with serving(store, 1) as one, serving(store, 2) as two:
        return [await _compared(one, two, kind, pairs, seconds) for kind in kinds]


def _kinds(rollout_id: str) -> list[Kind]:
    get, put, health = Request("GET", f"{AGL}/rollouts/{rollout_id}"), enqueue(), Request("GET", HEALTH)
    return [
        Kind("enqueue", put, MANY, TARGET),
        Kind("enqueue", put, FEW, None),
        Kind("get rollout", get, MANY, TARGET),
        Kind("get rollout", get, FEW, None),
        Kind("health", health, MANY, None),
    ]


async def _compared(one: Served, two: Served, kind: Kind, pairs: int, seconds: int) -> Row:
    runs: dict[str, list[Run]] = {one.url: [], two.url: []}

    async def seconds_each(served: Served) -> float:
        run = await _run(served, kind, seconds)
        runs[served.url].append(run)
        return 1 / run.rate

    for served in (one, two):
        await seconds_each(served)  # the first run does not count
        runs[served.url].clear()
    ratio, *_ = await paired(pairs, partial(seconds_each, one), partial(seconds_each, two))
    told = " against ".join(_told(runs[served.url]) for served in (two, one))
    name = f"{kind.what} by wrk, {kind.connections} connections, two server processes over one"
    return Row("P9" if kind.target else "-", name, ratio, kind.target, detail=told)


def _told(runs: list[Run]) -> str:
    run = sorted(runs)[len(runs) // 2]
    servers = " + ".join(f"{spent * US_PER_S:,.0f}" for spent in run.spent.servers)
    engine, wrk = run.spent.engine * US_PER_S, run.wrk_s * US_PER_S
    return f"{run.rate:,.0f}/s (µs each: server {servers}, engine {engine:,.0f}, wrk {wrk:,.0f})"


async def _run(served: Served, kind: Kind, seconds: int) -> Run:
    before, wrk_before = await served.spent(), _ended_children_s()
    with _script(kind.request) as script:
        url = served.url + kind.request.path
        arguments = ("-t1", f"-c{kind.connections}", f"-d{seconds}s", "-s", str(script), url)
        process = await asyncio.create_subprocess_exec(
            "wrk", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed = (await process.communicate())[0].decode()
    spent = (await served.spent()).since(before)
    rate, count = _RATE.search(printed), _COUNT.search(printed)
    if rate is None or count is None or _REFUSED.search(printed):
        raise RuntimeError(f"wrk was not served with {kind.request.path}: {printed}")
    each = Spent([taken / int(count[1]) for taken in spent.servers], spent.engine / int(count[1]))
    return Run(float(rate[1]), each, (_ended_children_s() - wrk_before) / int(count[1]))


def _ended_children_s() -> float:
    """Processor time of children that have ended: here each run of wrk is one, and nothing else ends meanwhile."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _script(request: Request) -> Generator[Path]:
    """What tells wrk which request to send."""
    lines = [f"wrk.method = {json.dumps(request.method)}", f"wrk.body = {json.dumps(request.body.decode())}"]
    lines += [f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in request.headers.items()]
    with tempfile.TemporaryDirectory(prefix="agl-") as folder:
        path = Path(folder) / "request.lua"
        path.write_text("\n".join(lines))
        yield path
