"""Rollouts and attempts begin: enqueue, dequeue, start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from pydantic import ValidationError

from agl_streams.function_types import NewRollout
from agl_streams.models import AttemptedRollout, EnqueueRolloutRequest, Rollout, RolloutConfig, RolloutMode
from agl_streams.projections import View, decode_rollout
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.store.repeats import RequestKey
from agl_streams.values import invalid

CLAIM_LIMIT: Final = 25  # rollouts in one claim call: each takes some 70 µs of the server's time


class WorkMixin(StoreBase):
    """What begins."""

    async def enqueue_rollout(
        self,
        input: Any,
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        rollout_id: str | None = None,
    ) -> Rollout:
        """Put one rollout at the end of the queue.

        Args:
            input: any JSON value.
            resources_id: None takes the latest resources of this moment, or none.
            rollout_id: the caller's own id makes the call safe to repeat: a second enqueue returns the first rollout
                unchanged.

        Raises:
            InvalidRequest, TooLarge: the message names the field and the value.
        """
        request = request_of(
            input=input,
            mode=mode,
            resources_id=resources_id,
            config=config,
            metadata=metadata,
            rollout_id=rollout_id,
        )
        return (await self.enqueue_many_rollouts([request]))[0]

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        """Put rollouts at the end of the queue, in order; one call per shard and hundred.

        Raises:
            InvalidRequest, TooLarge: one of them is wrong; then none was enqueued.
        """
        encoded = await self._encode(rollouts)
        views: dict[str, View] = {}
        for shard in range(self.shards):
            mine = [new for new in encoded if self.functions_of(new.rollout_id) is self._functions[shard]]
            if mine:
                found = await self._functions[shard].enqueue(mine)
                views.update(zip((new.rollout_id for new in mine), found, strict=True))
        return [bare(decode_rollout(views[new.rollout_id])) for new in encoded]

    async def start_rollout(
        self,
        input: Any,
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        request_key: str | None = None,
    ) -> AttemptedRollout:
        """Make a rollout outside the queue, with its first attempt open.

        Args:
            request_key: a repeat of the call with the same key makes no second rollout.

        Raises:
            InvalidRequest, TooLarge: the message names the field and the value.
        """
        key = RequestKey.of(request_key)
        request = request_of(
            input=input,
            mode=mode,
            resources_id=resources_id,
            config=config,
            metadata=metadata,
            rollout_id=key.rollout_id,
        )
        new = (await self._encode([request]))[0]
        functions = self.functions_of(new.rollout_id)
        view = await functions.start_rollout(new, key.attempt_id(), self._worker(worker_id), self._lease(lease_seconds))
        return cast("AttemptedRollout", decode_rollout(view))

    async def start_attempt(
        self,
        rollout_id: str,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        request_key: str | None = None,
    ) -> AttemptedRollout:
        """Open one more attempt of any rollout; a finished one is open again.

        Args:
            request_key: a repeat of the call with the same key opens no second attempt.

        Raises:
            NotFound: no such rollout.
        """
        functions = self.functions_of(requests.known_form(rollout_id))
        attempt_id = RequestKey.of(request_key).attempt_id()
        view = await functions.start_attempt(
            rollout_id, attempt_id, self._worker(worker_id), self._lease(lease_seconds)
        )
        return cast("AttemptedRollout", decode_rollout(view))

    async def dequeue_rollout(
        self, worker_id: str | None = None, *, lease_seconds: float | None = None, request_key: str | None = None
    ) -> AttemptedRollout | None:
        """Take the oldest queued rollout without blocking; None when the queue is empty.

        Args:
            lease_seconds: None gives no lease: then only the rollout's own limits end the attempt.
            request_key: see `dequeue_many_rollouts`.
        """
        found = await self.dequeue_many_rollouts(
            limit=1, worker_id=worker_id, lease_seconds=lease_seconds, request_key=request_key
        )
        return found[0] if found else None

    async def dequeue_many_rollouts(
        self,
        *,
        limit: int = 1,
        worker_id: str | None = None,
        lease_seconds: float | None = None,
        request_key: str | None = None,
    ) -> list[AttemptedRollout]:
        """Take up to ``limit`` rollouts, oldest first; ``limit <= 0`` takes none. First in, first out per shard.

        Args:
            request_key: a repeat of the call with the same key, within minutes, is given what the first was given. With
                several shards ask `dequeued_before` first: a repeat may start at another one.
        """
        key = RequestKey.of(request_key)
        requests.of_kind(limit, int, "limit")
        worker, lease = self._worker(worker_id), self._lease(lease_seconds)
        views: list[View] = []
        for offset in range(self.shards):
            functions = self._functions[(self._next_shard + offset) % self.shards]
            while len(views) < limit:
                wanted = key.attempt_ids(len(views), min(limit - len(views), CLAIM_LIMIT))
                found = await functions.claim(wanted, worker, lease, key.token)
                views += found
                if len(found) < len(wanted):
                    break
        self._next_shard = (self._next_shard + 1) % self.shards
        return [cast("AttemptedRollout", decode_rollout(view)) for view in views]

    async def dequeued_before(self, request_key: str, *, limit: int = 1) -> list[AttemptedRollout]:
        """What a dequeue with this key and limit was given and its caller may not have heard of. Takes nothing."""
        key = RequestKey.of(request_key)
        attempt_ids = key.attempt_ids(0, max(limit, 0))
        views = [view for functions in self._functions for view in await functions.claimed(key.token, attempt_ids)]
        return [cast("AttemptedRollout", decode_rollout(view)) for view in views]

    async def _encode(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[NewRollout]:
        latest = None
        for request in rollouts:
            requests.of_kind(request, EnqueueRolloutRequest, "a rollout to enqueue")
        if any(request.resources_id is None for request in rollouts):
            latest = await self._latest_resources_id()
        return [requests.new_rollout(request, latest, self.settings.max_input_bytes) for request in rollouts]


def request_of(**fields: Any) -> EnqueueRolloutRequest:
    """A request from keyword arguments.

    Raises:
        InvalidRequest: a field is of the wrong type.
    """
    try:
        return EnqueueRolloutRequest(**fields)
    except ValidationError as error:
        raise invalid(error, "rollout") from error


def bare(rollout: Rollout) -> Rollout:
    """A rollout without its attempt, as enqueue and update answer."""
    if not isinstance(rollout, AttemptedRollout):
        return rollout
    return Rollout(**{name: getattr(rollout, name) for name in Rollout.model_fields})
