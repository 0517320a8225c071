"""`bench`: how fast it is."""

from __future__ import annotations

from typing import Annotated

import typer

from agl_streams.cli.app import bench_app
from agl_streams.cli.options import DataDir, JsonOutput, Namespace, RedisUrl, server_of, settings_of
from agl_streams.config import load_settings


@bench_app.command("core")
def bench_core(
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved A/B pairs; the median counts.")] = 5,
) -> None:
    """Writes, batches, wake-up and whole cycles of the store, against bare commands by the same client."""
    given = settings_of(redis_url, namespace, data_dir)
    from agl_streams.bench.core import main as run_bench  # a benchmark's needs are no command's start-up time

    with server_of(given) as settings:
        code = run_bench(settings, pairs=pairs, json_output=json_output)
    raise typer.Exit(code)


@bench_app.command("store")
def bench_store(
    json_output: JsonOutput = False,
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved A/B pairs; the median counts.")] = 5,
    rollouts: Annotated[int, typer.Option(min=1, help="Finished rollouts in the full store, 1.1 KB each.")] = 1_000_000,
) -> None:
    """Speed and size of the store, growth included, on servers of its own: some five minutes and 2 GB of memory."""
    from agl_streams.bench.store import main as run_bench  # a benchmark's needs are no command's start-up time

    raise typer.Exit(run_bench(load_settings(), rollouts=rollouts, pairs=pairs, json_output=json_output))


@bench_app.command("server")
def bench_server(
    json_output: JsonOutput = False,
    pairs: Annotated[int, typer.Option(min=1, help="Interleaved A/B pairs; the median counts.")] = 5,
) -> None:
    """The HTTP server's routes, and what a second process adds, on an engine of its own."""
    from agl_streams.bench.server import main as run_bench  # a benchmark's needs are no command's start-up time

    raise typer.Exit(run_bench(load_settings(), pairs=pairs, json_output=json_output))
