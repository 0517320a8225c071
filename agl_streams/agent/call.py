"""Running an agent: an async one on the loop, a plain one in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agl_streams.agent.decorator import Agent, rollout
from agl_streams.errors import AgentError

if TYPE_CHECKING:
    from agl_streams.agent.context import AttemptContext

T = TypeVar("T")


async def call_agent(agent: Callable[..., Any], context: AttemptContext) -> Any:
    """Run an agent, decorated or not, on an attempt and return what it returns, unchecked; see `spans_for_result`.

    A plain function gets a thread of its own, never one of a pool that other agents could fill. Cancelling the call
    leaves that thread running: Python cannot stop it, and what it still emits is late.

    Raises:
        NotFound: the rollout's resources lack what the agent asks for.
        AgentError: the agent tried to end the process.
        Exception: whatever the agent raises.
    """
    wrapped = cast("Agent[..., Any]", agent if isinstance(agent, Agent) else rollout(agent))
    call = wrapped.bind(context)
    try:
        if wrapped.is_async:
            return await call()
        result = await _in_thread(call, name=f"agent-{context.attempt.attempt_id}")
        # A plain function may still hand out a coroutine, as a lambda around an async one does.
        return await result if inspect.isawaitable(result) else result
    except SystemExit as error:
        # asyncio would stop the runner for it, and with it every other agent.
        raise _not_an_exit(error) from error


async def _in_thread(call: Callable[[], T], *, name: str) -> T:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.done():  # it is, when the call was cancelled meanwhile
            outcome()

    def run() -> None:
        try:
            outcome = partial(future.set_result, variables.run(call))
        except Exception as raised:  # noqa: BLE001 — handed over to the awaiting task
            outcome = partial(future.set_exception, _carried(raised))
        except BaseException as raised:  # noqa: BLE001 — handed over to the awaiting task
            outcome = partial(future.set_exception, _not_an_exit(raised))
        with suppress(RuntimeError):  # the loop is closed: nobody waits for the outcome any more
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


def _carried(error: Exception) -> Exception:
    """The error in a form that a future can carry, which StopIteration is not."""
    if not isinstance(error, StopIteration):
        return error
    carried = AgentError(f"the agent raised {error!r}")
    carried.__cause__ = error
    return carried


def _not_an_exit(error: BaseException) -> AgentError:
    carried = AgentError(f"the agent raised {error!r}, which would end the process; return or raise an Exception")
    carried.__cause__ = error
    return carried
