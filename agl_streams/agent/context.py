"""The attempt that an agent works on, found through a context variable from its task, its thread and what they call."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from agl_streams import clock
from agl_streams.agent.buffer import Sink, SpanBuffer
from agl_streams.errors import InvalidRequest, NotFound, TooLarge
from agl_streams.models import LLM, PromptTemplate, ProxyLLM, Span

if TYPE_CHECKING:
    from agl_streams.models import Attempt, AttemptedRollout, NamedResources, ResourcesUpdate, TraceStatus

__all__ = ["AttemptContext", "Sink", "current_context"]

MAX_SPAN_BYTES: Final = 8 * 1024 * 1024
"""The default limit of one encoded span; the runner passes the configured one."""

_current: ContextVar[AttemptContext | None] = ContextVar("agl_streams_attempt", default=None)


class AttemptContext:
    """One attempt from the side of its agent: what it works on, what with, and where its spans go.

    Attributes:
        rollout: the rollout with this attempt; ``rollout.input`` is the task.
        attempt: the attempt.
        resources: the version of the resources that the rollout runs against, if any.
    """

    def __init__(
        self,
        rollout: AttemptedRollout,
        resources: ResourcesUpdate | None,
        sink: Sink,
        *,
        max_span_bytes: int = MAX_SPAN_BYTES,
    ) -> None:
        """Make the context of an attempt.

        Args:
            sink: stores spans in order; safe to repeat. Spans come with sequence id 0: it assigns the number.
            max_span_bytes: larger spans are refused when they are emitted.
        """
        self.rollout = rollout
        self.attempt: Attempt = rollout.attempt
        self.resources = resources
        self._trace_id = secrets.token_hex(16)
        self._max_span_bytes = max_span_bytes
        self._buffer = SpanBuffer(sink)

    @contextmanager
    def bound(self) -> Generator[AttemptContext]:
        """Make this the current attempt of the running task, and of what it starts. Needs a running event loop."""
        self._buffer.attach(asyncio.get_running_loop())
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def base_url(self, resource: LLM | ProxyLLM) -> str:
        """The base URL for an OpenAI client, through which the proxy attributes calls to this attempt."""
        return resource.get_base_url(self.rollout.rollout_id, self.attempt.attempt_id)

    def llm(self) -> LLM:
        """The first model among the resources, its endpoint being the base URL for this attempt.

        Raises:
            NotFound: there is none.
        """
        for resource in self._named_resources().values():
            if isinstance(resource, (LLM, ProxyLLM)):
                return LLM(
                    endpoint=self.base_url(resource),
                    model=resource.model,
                    api_key=resource.api_key,
                    sampling_parameters=resource.sampling_parameters,
                )
        raise self._without("model (llm or proxy_llm)")

    def prompt_template(self) -> PromptTemplate:
        """The first prompt template among the resources.

        Raises:
            NotFound: there is none.
        """
        for resource in self._named_resources().values():
            if isinstance(resource, PromptTemplate):
                return resource
        raise self._without("prompt template")

    def span(self, name: str, attributes: Mapping[str, Any], status: TraceStatus | None = None) -> Span:
        """A span of this attempt that happens now, in the attempt's trace. It is not emitted.

        Raises:
            InvalidRequest: an attribute does not fit.
        """
        now = clock.now_s()
        return Span.from_attributes(
            name=name,
            attributes=attributes,
            rollout_id=self.rollout.rollout_id,
            attempt_id=self.attempt.attempt_id,
            trace_id=self._trace_id,
            start_time=now,
            end_time=now,
            status=status,
        )

    def emit(self, *spans: Span) -> None:
        """Send spans to the store, after all that were emitted before, from any thread and without waiting.

        Raises:
            TooLarge: a span is above the limit. None of the spans is sent.
            InvalidRequest: a span cannot be written as JSON. None of the spans is sent.
            AttemptEnded: the process that ran the attempt has stopped.
        """
        for span in spans:
            size = len(span.to_json())
            if size > self._max_span_bytes:
                raise TooLarge(f"span {span.name!r} has {size:,} bytes as JSON, the limit is {self._max_span_bytes:,}")
        self._buffer.put(spans)

    async def flush(self) -> None:
        """Wait until every emitted span is stored.

        Raises:
            AglError: the store's error; the spans are kept, and a later flush tries again.
        """
        await self._buffer.flush()

    def _named_resources(self) -> NamedResources:
        return self.resources.resources if self.resources else {}

    def _without(self, kind: str) -> NotFound:
        bundle = f"resources {self.resources.resources_id!r}" if self.resources else "no resources"
        return NotFound(f"the agent needs a {kind}; rollout {self.rollout.rollout_id!r} runs against {bundle} without")


def current_context() -> AttemptContext:
    """The attempt that the calling task or thread works on.

    Raises:
        InvalidRequest: there is none.
    """
    context = _current.get()
    if context is None:
        raise InvalidRequest(
            "there is no current attempt here: emit from a function that a runner runs, in its own task or thread; "
            "a thread that you start yourself needs contextvars.copy_context().run"
        )
    return context
