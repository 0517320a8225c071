"""The demo's inference server: a trainable policy behind vLLM's HTTP interface, its weights replaced while it serves.

A call is answered by the version that is current when it comes in. New weights come as ``POST /policy`` from the
learner of this machine, so the server listens on the loopback address alone.

As a process of its own: ``python -m agl_streams.demo.policy_server --port 8000``.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

import aiohttp
import numpy as np
import orjson
from aiohttp import web

from agl_streams import clock
from agl_streams.config import Settings, load_settings
from agl_streams.demo import chat_wire
from agl_streams.demo.chat_request import JSON, ChatRequest, Refused, bad_request, check_length, read_request
from agl_streams.demo.chat_wire import Call
from agl_streams.demo.policy import Policy, weights_shape
from agl_streams.demo.sampling import Sampling
from agl_streams.demo.tokenizer import Tokenizer
from agl_streams.errors import ConfigError, Conflict, InvalidRequest
from agl_streams.logger import get_logger
from agl_streams.process import run_until_stopped
from agl_streams.telemetry import configure_logging

HOST: Final = "127.0.0.1"
WEIGHTS: Final = np.dtype("<f8")  # as sent: little-endian, row after row
WEIGHTS_TYPE: Final = "application/octet-stream"
MAX_BODY_BYTES: Final = 64 * 1024 * 1024  # weights of the demo have some 3 MB
SHUTDOWN_S: Final = 2.0  # for calls that still run; none of the policy's takes longer

_log = get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PolicyService:
    """Answers calls with the current policy.

    Attributes:
        policy: the current version. It is replaced as a whole, so a call has one version from its start to its end.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``"""
        asked = read_request(await request.read(), request.content_type)
        call = _call(asked, self.policy, request.headers.get("X-Request-Id"))
        if not asked.stream:
            return _json(chat_wire.whole_answer(call))
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for frame in chat_wire.stream_frames(call):
            await response.write(frame)
        await response.write_eof()
        return response

    async def replace(self, request: web.Request) -> web.StreamResponse:
        """``POST /policy?version=…&fingerprint=…`` with the weights as the body; safe to repeat."""
        policy = self._read_policy(request.query, await request.read())
        ahead = policy.version - self.policy.version
        if ahead < 0 or (ahead == 0 and not np.array_equal(policy.weights, self.policy.weights)):
            message = f"version {policy.version} is no successor of version {self.policy.version}, which is served"
            return _json(orjson.dumps({"detail": message}), HTTPStatus.CONFLICT)
        self.policy = policy
        _log.info("policy_replaced", version=policy.version)
        return await self.version(request)

    async def version(self, _request: web.Request) -> web.Response:
        """``GET /policy/version``"""
        return _json(orjson.dumps({"version": self.policy.version, "fingerprint": self.policy.fingerprint}))

    async def models(self, _request: web.Request) -> web.Response:
        """``GET /v1/models``"""
        return _json(chat_wire.models(int(clock.now_s())))

    async def health(self, _request: web.Request) -> web.Response:
        """``GET /health``: 200 and nothing, as vLLM."""
        return web.Response()

    def _read_policy(self, query: Mapping[str, str], body: bytes) -> Policy:
        shape = weights_shape(self.policy.tokenizer)
        size = shape[0] * shape[1] * WEIGHTS.itemsize
        if len(body) != size:
            raise bad_request(f"weights of shape {shape} have {size} bytes, not {len(body)}", "weights")
        version = query.get("version", "")
        if not version.isascii() or not version.isdigit():
            raise bad_request("version must be a whole number", "version", version)
        try:
            policy = Policy(self.policy.tokenizer, np.frombuffer(body, WEIGHTS).reshape(shape), int(version))
        except ValueError as error:
            raise bad_request(str(error), "weights") from error
        if policy.fingerprint != query.get("fingerprint"):
            raise bad_request(f"these weights have the fingerprint {policy.fingerprint}", "fingerprint")
        return policy


def make_app(policy: Policy) -> web.Application:
    """The server as an application that begins with ``policy``."""
    service = PolicyService(policy)
    app = web.Application(middlewares=[_vllm_form], client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", service.chat)
    app.router.add_get("/v1/models", service.models)
    app.router.add_get("/health", service.health)
    app.router.add_post("/policy", service.replace)
    app.router.add_get("/policy/version", service.version)
    return app


async def serve(policy: Policy, port: int, stop: asyncio.Event) -> None:
    """Serve on the loopback address until ``stop`` is set.

    Args:
        port: 0 for any free one; the event ``policy_server_listening`` names it.

    Raises:
        ConfigError: the port is taken.
    """
    runner = web.AppRunner(
        make_app(policy), access_log=None, handler_cancellation=True, handle_signals=False, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        _log.info("policy_server_listening", host=HOST, port=runner.addresses[0][1], version=policy.version)
        await stop.wait()
    except OSError as error:
        raise ConfigError(f"the policy server cannot listen on {HOST}:{port}: {error}") from error
    finally:
        await runner.cleanup()
    _log.info("policy_server_stopped")


async def push_policy(session: aiohttp.ClientSession, url: str, policy: Policy) -> None:
    """Make the server at ``url`` (without a path) answer with ``policy``. Safe to repeat.

    Raises:
        Conflict: it serves a later version, or another policy of that version.
        InvalidRequest: it does not take the policy.
        aiohttp.ClientError: it cannot be reached.
    """
    query = {"version": str(policy.version), "fingerprint": policy.fingerprint}
    body = io.BytesIO(policy.weights.astype(WEIGHTS, copy=False).tobytes())  # aiohttp warns of large plain bytes
    async with session.post(f"{url}/policy", params=query, data=body, headers={"content-type": WEIGHTS_TYPE}) as answer:
        text = await answer.text()
    if answer.status == HTTPStatus.CONFLICT:
        raise Conflict(f"the policy server refused version {policy.version}: {text}")
    if answer.status != HTTPStatus.OK:
        raise InvalidRequest(f"the policy server answered {answer.status} to version {policy.version}: {text}")


def run(_settings: Settings, *, port: int = 0, seed: int = 0) -> None:
    """Serve until SIGTERM or SIGINT, at first the untrained policy of ``seed``; see `serve`."""
    run_until_stopped(partial(serve, Policy.initial(Tokenizer.load(), seed), port))


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m agl_streams.demo.policy_server``"""
    parser = argparse.ArgumentParser(prog="python -m agl_streams.demo.policy_server")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--seed", type=int, default=0, help="of the untrained policy's weights")
    options = parser.parse_args(arguments)
    settings = load_settings()
    configure_logging(settings)
    run(settings, port=options.port, seed=options.seed)


def _call(asked: ChatRequest, policy: Policy, header_id: str | None) -> Call:
    prompt_ids = policy.tokenizer.encode_chat((message.role, message.text) for message in asked.messages)
    sampling = Sampling(
        temperature=1.0 if asked.temperature is None else asked.temperature,
        seed=asked.seed,
        max_tokens=check_length(asked, len(prompt_ids)),
        stops=asked.stops,
    )
    call_id = header_id or asked.request_id or secrets.token_hex(8)
    return Call(f"chatcmpl-{call_id}", int(clock.now_s()), asked, policy, prompt_ids, sampling)


@web.middleware
async def _vllm_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give refusals the forms that vLLM's have, those of the router too."""
    try:
        return await handler(request)
    except Refused as refused:
        return _json(refused.body, refused.status)
    except web.HTTPException as refused:
        return _json(orjson.dumps({"detail": refused.reason}), refused.status)


def _json(body: bytes, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(body=body, status=status, content_type=JSON)


if __name__ == "__main__":
    main()
