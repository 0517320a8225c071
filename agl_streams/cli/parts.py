"""The parts that run until they are stopped: `proxy`, `aggregate`, `worker`, `serve`.

Parts live in packages that this one never imports; they are found through the entry-point group ``agl_streams.parts``.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from agl_streams.cli.app import app
from agl_streams.cli.options import DataDir, JsonLogs, Namespace, RedisUrl, server_of, settings_of
from agl_streams.errors import ConfigError
from agl_streams.parts import load_part


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
    given = settings_of(redis_url, namespace, data_dir, json_logs, upstream=upstream, proxy_host=host, proxy_port=port)
    if given.upstream is None:
        raise ConfigError("the proxy needs an inference server: give --upstream URL or set AGL_UPSTREAM")
    run = load_part("proxy")
    with server_of(given) as settings:
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
    given = settings_of(redis_url, namespace, data_dir, json_logs)
    run = load_part("aggregate")
    with server_of(given) as settings:
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
    given = settings_of(redis_url, namespace, data_dir, json_logs, lease_seconds=lease_seconds)
    module, separator, attribute = agent.partition(":")
    if not (module and separator and attribute):
        raise ConfigError(f"{agent!r} names no agent: give MODULE:AGENT, as in my_agents.math:solve")
    run = load_part("worker")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: an agent in the current folder is found
    with server_of(given) if server is None else contextlib.nullcontext(given) as settings:
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
    given = settings_of(redis_url, namespace, data_dir, json_logs, server_host=host, server_port=port)
    from agl_streams.server.serve import run  # a web server's needs are no other command's start-up time

    with server_of(given) as settings:
        run(
            settings,
            host=settings.server_host,
            port=settings.server_port,
            workers=workers,
            aggregator=not no_aggregator,
            cors_origins=cors_origin or (),
        )
