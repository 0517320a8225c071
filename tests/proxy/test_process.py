"""The proxy as a process of its own: it listens, serves, and lets running calls end when it is told to stop."""

from __future__ import annotations

import asyncio
import json
import signal

import aiohttp
import pytest

from agl_streams import semconv
from agl_streams.config import Settings
from agl_streams.store import StreamStore
from tests.proxy.support import REQUEST
from tests.support.engine_standin import EngineStandin, Exchange
from tests.support.processes import Process, ProcessGroup
from tests.support.waiting import until


def start(processes: ProcessGroup, settings: Settings, engine: EngineStandin, port: int = 0) -> Process:
    """The command ``agl-streams proxy``."""
    assert settings.redis_url is not None
    arguments = ["--upstream", f"{engine.url}/v1", "--port", str(port), "--redis-url", settings.redis_url]
    return processes.module("agl_streams.cli", "proxy", *arguments, "--namespace", settings.namespace, "--json")


async def address(process: Process) -> str:
    """Where it listens, as its log says."""

    def listening() -> str | None:
        assert process.running, process.output
        for line in process.output.splitlines():
            if '"proxy_listening"' in line:
                event = json.loads(line)
                return f"http://{event['host']}:{event['port']}"
        return None

    return await until(listening, what="the proxy to listen") or ""


async def test_it_serves_and_ends_running_calls_on_sigterm(
    processes: ProcessGroup, settings: Settings, store: StreamStore, engine: EngineStandin
) -> None:
    """SIGTERM during a call: the call gets its whole answer and its span, then the process ends well."""
    await store.enqueue_rollout({"task": 1})
    attempted = await store.dequeue_rollout(worker_id="w-1")
    assert attempted is not None
    go_on = asyncio.Event()

    async def rest(exchange: Exchange) -> None:
        await go_on.wait()
        await exchange.speak()

    engine.behave(rest)
    process = start(processes, settings, engine)
    base = f"{await address(process)}/rollout/{attempted.rollout_id}/attempt/{attempted.attempt.attempt_id}"
    async with aiohttp.ClientSession() as client:
        asked = asyncio.create_task(client.post(f"{base}/v1/chat/completions", json=REQUEST))
        await until(lambda: engine.running == 1, what="the call to reach the server")
        process.signal(signal.SIGTERM)
        await until(lambda: '"stopping"' in process.output, what="the proxy to take notice")
        go_on.set()
        response = await asked
        assert response.status == 200
        assert await response.json()
    assert await asyncio.to_thread(process.wait) == 0
    (span,) = await store.query_spans(attempted.rollout_id)
    assert span.attributes[semconv.CALL_COMPLETE] is True


async def test_a_second_proxy_on_the_same_port_fails_at_its_start(
    processes: ProcessGroup, settings: Settings, engine: EngineStandin
) -> None:
    """Two proxies never share a port in silence."""
    first = await address(start(processes, settings, engine))
    port = int(first.rpartition(":")[2])
    second = start(processes, settings, engine, port)
    assert await asyncio.to_thread(second.wait) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in second.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_proxy_stops_at_once(
    processes: ProcessGroup, settings: Settings, engine: EngineStandin, number: signal.Signals
) -> None:
    """Without calls there is nothing to wait for."""
    process = start(processes, settings, engine)
    await address(process)
    process.signal(number)
    assert await asyncio.to_thread(process.wait) == 0
