"""`demo`: the whole system at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl_streams.cli.app import app
from agl_streams.cli.options import DataDir, JsonOutput, Namespace, RedisUrl, extra, settings_of


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
