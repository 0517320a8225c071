"""`demo` and `bench`: the whole system at work, and its speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl_streams.cli.app import app, bench_app
from agl_streams.cli.options import DataDir, JsonOutput, Namespace, RedisUrl, extra, server_of, settings_of
from agl_streams.config import load_settings


@app.command()
def demo(
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
    runners: Annotated[int, typer.Option(min=1, help="Runner processes.")] = 3,
    batches: Annotated[
        int, typer.Option(min=1, help="Gradient steps. With fewer than 20 it may not learn enough.")
    ] = 20,
    batch_size: Annotated[int, typer.Option(min=2, help="Rollouts in each batch.")] = 64,
    seed: Annotated[
        int, typer.Option(min=0, help="Of policy, order of tasks and sampling: the same, the same run.")
    ] = 0,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Call the model with server-sent events, or without.")
    ] = True,
    kill_a_runner: Annotated[
        bool, typer.Option("--kill-a-runner", help="SIGKILL a runner in the middle, and show what became of its work.")
    ] = False,
    picture: Annotated[
        Path, typer.Option(help="Where the reward curve is drawn; the ending of the name chooses the format.")
    ] = Path("agl-streams-demo.png"),
) -> None:
    """Train a small policy end to end: engine, aggregator, proxy, runners, learner, each a process of its own.

    Uses a throw-away engine; with --redis-url, a new namespace of that server.
    Exit code 1: a promise did not hold, such as a last reward below 0.9.
    Logs warnings only, unless AGL_LOG_LEVEL is set.
    """
    settings = settings_of(redis_url, namespace, data_dir)
    with extra("demo"):
        from agl_streams.demo.options import DemoOptions  # its package belongs to the extra `demo`
        from agl_streams.demo.run import main as run_demo  # needs numpy and openai, of the extra `demo`
    options = DemoOptions(
        settings=settings,
        runners=runners,
        seed=seed,
        stream=stream,
        kill_a_runner=kill_a_runner,
        json_output=json_output,
        picture=picture,
        batches=batches,
        batch_size=batch_size,
    )
    raise typer.Exit(run_demo(options))


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
