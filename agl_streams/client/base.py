"""What every part of the client stands on: the transport, the settings, and answers as models."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from agl_streams.client.transport import Transport
from agl_streams.config import Settings, load_settings, mask_url
from agl_streams.errors import NotFound, ServerRefused
from agl_streams.models import UNSET, AttemptedRollout, PaginatedResult, Rollout
from agl_streams.shapes import Wire
from agl_streams.values import check_json_value

M = TypeVar("M", bound=Wire)

CAPABILITIES: Final = {"thread_safe": True, "async_safe": True, "zero_copy": True, "otlp_traces": True}


class ClientBase:
    """Addresses and life cycle. Usable from several event loops and threads; pickled, it works in the other process.

    Attributes:
        url: base URL of the server.
        settings: limits and the default lease, as this process has them.
    """

    def __init__(self, url: str, settings: Settings | None = None) -> None:
        """Nothing is connected yet; `connect` also asks whether the server is there."""
        self.settings = settings or load_settings()
        self.url = url.rstrip("/")
        self._transport = Transport(self.url)

    @classmethod
    async def connect(cls, url: str, *, settings: Settings | None = None) -> Self:
        """A client of a server that answers.

        Raises:
            StoreUnavailable: nobody answers there.
            ServerRefused: it is no server of ours, nor of Agent-lightning's kind.
        """
        client = cls(url, settings)
        try:
            return await client.open()
        except BaseException:
            await client.close()
            raise

    async def open(self) -> Self:
        """Ask whether the server is there. `connect` has done it; a client that came by pickle need not.

        Raises:
            As `connect`.
        """
        try:
            await self._transport.get("health")
        except NotFound as error:
            raise ServerRefused(
                f"{mask_url(self.url)} has no /v1/agl/health: is it the address of an agl-streams server?"
            ) from error
        return self

    async def close(self) -> None:
        """Close the connections of the running event loop. Safe to call twice."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> Any:
        return type(self), (self.url, self.settings)

    @property
    def capabilities(self) -> dict[str, bool]:
        """What this store can do, in Agent-lightning's terms."""
        return dict(CAPABILITIES)

    def otlp_traces_endpoint(self) -> str:
        """Where an OTLP/HTTP exporter sends its traces to."""
        return f"{self.url}/v1/traces"

    async def statistics(self) -> dict[str, Any]:
        """The counts of the namespace at this moment; see `StreamStore.statistics`."""
        return await self._transport.get("statistics")

    async def settle(self) -> None:
        """Fold the log up to its present end, so that sums include all that was written before this call."""
        await self._transport.post("settle")


def new_key() -> str:
    """A key for one request, the same on all its repeats."""
    return secrets.token_hex(16)


def encoded(fields: Mapping[str, Any], max_bytes: int) -> bytes:
    """A body of plain fields. Those that are UNSET are left out.

    Raises:
        InvalidRequest, TooLarge: a value is not JSON, or above its limit; the message names the place.
    """
    parts = [
        b'"%b":%b' % (name.encode(), field_json(value, name, max_bytes))
        for name, value in fields.items()
        if value is not UNSET
    ]
    return b"{%b}" % b",".join(parts)


def field_json(value: Any, name: str, max_bytes: int) -> bytes:
    """One field as JSON. Errors as in `encoded`."""
    return value.to_json() if isinstance(value, Wire) else check_json_value(value, name, max_bytes)


def rollout_of(answer: Any) -> Rollout:
    """A rollout, with its attempt where the answer has one."""
    return (AttemptedRollout if "attempt" in answer else Rollout).checked(answer, "the server's answer")


def attempted_of(answer: Any) -> AttemptedRollout:
    """A rollout with its attempt."""
    return AttemptedRollout.checked(answer, "the server's answer")


def maybe(model: type[M], answer: Any) -> M | None:
    """A model, or None for null."""
    return None if answer is None else model.checked(answer, "the server's answer")


def page_of(items: Iterable[M], answer: Any) -> PaginatedResult[M]:
    """A page of models."""
    counts = {name: cast("int", answer[name]) for name in ("limit", "offset", "total")}
    return PaginatedResult(items=list(items), **counts)
