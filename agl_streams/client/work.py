"""Rollouts and attempts over HTTP: begin, report, wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from agl_streams import clock
from agl_streams.client.base import ClientBase, attempted_of, encoded, new_key, rollout_of
from agl_streams.client.transport import segment
from agl_streams.errors import InvalidRequest
from agl_streams.lifecycle import QUEUING
from agl_streams.models import (
    UNSET,
    Attempt,
    AttemptedRollout,
    EnqueueRolloutRequest,
    Rollout,
    RolloutConfig,
    RolloutMode,
    Unset,
)
from agl_streams.projections import RolloutSums
from agl_streams.values import new_rollout_id

LONGEST_WAIT_S: Final = 50.0
"""One wait of the server: below the 60 s after which proxies cut an idle connection. Longer ones are asked again."""
ENQUEUE_AT_ONCE: Final = 500


class WorkCalls(ClientBase):
    """What begins, what is reported, who waits."""

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
        """Put one rollout at the end of the queue; see `StreamStore.enqueue_rollout`."""
        fields = {
            "input": input,
            "mode": mode,
            "resources_id": resources_id,
            "config": config,
            "metadata": metadata,
            "rollout_id": rollout_id,
        }
        request = EnqueueRolloutRequest.checked(fields, "rollout")
        return (await self.enqueue_many_rollouts([request]))[0]

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        """Put rollouts at the end of the queue, in order. Their ids are made here: a repeat enqueues nothing twice."""
        limit = self.settings.max_input_bytes
        bodies = [_rollout_json(request, limit) for request in rollouts]
        made: list[Rollout] = []
        for first in range(0, len(bodies), ENQUEUE_AT_ONCE):
            batch = b",".join(bodies[first : first + ENQUEUE_AT_ONCE])
            answer = await self._transport.post("queues/rollouts/enqueue", b'{"rollouts":[%b]}' % batch)
            made += map(rollout_of, answer)
        return made

    async def dequeue_rollout(
        self, worker_id: str | None = None, *, lease_seconds: float | None = None, request_key: str | None = None
    ) -> AttemptedRollout | None:
        """Take the oldest queued rollout; None when the queue is empty."""
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
        wait_seconds: float = 0.0,
    ) -> list[AttemptedRollout]:
        """Take up to ``limit`` rollouts, oldest first. An answer that is lost on its way is asked for again.

        Args:
            wait_seconds: how long the server waits while the queue is empty. Not in `StreamStore`, where
                `RolloutConsumer` waits.
        """
        if limit <= 0:
            return []
        body = encoded(
            {"limit": limit, "worker_id": worker_id, "lease_seconds": lease_seconds, "wait": wait_seconds},
            self.settings.max_input_bytes,
        )
        key = request_key or new_key()
        answer = await self._transport.post("queues/rollouts/dequeue", body, key=key, waits_s=wait_seconds)
        return [attempted_of(one) for one in answer]

    async def dequeued_before(self, request_key: str, *, limit: int = 1) -> list[AttemptedRollout]:
        """What a dequeue with this key and limit was given and its caller may not have heard of. Takes nothing."""
        body = b'{"limit":%d}' % limit
        answer = await self._transport.post("queues/rollouts/dequeued", body, key=request_key)
        return [attempted_of(one) for one in answer]

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
        """Make a rollout outside the queue, with its first attempt open; see `StreamStore.start_rollout`."""
        fields = {
            "input": input,
            "mode": mode,
            "resources_id": resources_id,
            "config": config,
            "metadata": metadata,
            "worker_id": worker_id,
            "lease_seconds": lease_seconds,
        }
        body = encoded(fields, self.settings.max_input_bytes)
        return attempted_of(await self._transport.post("rollouts", body, key=request_key or new_key()))

    async def start_attempt(
        self,
        rollout_id: str,
        worker_id: str | None = None,
        *,
        lease_seconds: float | None = None,
        request_key: str | None = None,
    ) -> AttemptedRollout:
        """Open one more attempt of any rollout; a finished one is open again."""
        body = encoded({"worker_id": worker_id, "lease_seconds": lease_seconds}, self.settings.max_input_bytes)
        path = f"rollouts/{segment(rollout_id)}/attempts"
        return attempted_of(await self._transport.post(path, body, key=request_key or new_key()))

    async def update_rollout(
        self,
        rollout_id: str,
        input: Any | Unset = UNSET,
        mode: RolloutMode | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: Any = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
    ) -> Rollout:
        """Replace fields of a rollout; UNSET leaves one as it is; see `StreamStore.update_rollout`.

        A rollout that is put back on the queue may be taken and finished before a lost answer is noticed, and a repeat
        would queue it once more. So this one request is not repeated: after `StoreUnavailable` look at the rollout.
        """
        fields = {
            "input": input,
            "mode": mode,
            "resources_id": resources_id,
            "status": status,
            "config": config,
            "metadata": metadata,
        }
        body = encoded(fields, self.settings.max_input_bytes)
        path = f"rollouts/{segment(rollout_id)}"
        return rollout_of(await self._transport.post(path, body, repeatable=status not in tuple(QUEUING)))

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        status: Any = UNSET,
        worker_id: str | Unset = UNSET,
        last_heartbeat_time: float | Unset = UNSET,
        metadata: dict[str, Any] | Unset = UNSET,
        *,
        reason: str | None = None,
    ) -> Attempt:
        """Record what a runner or an operator says of an attempt; see `StreamStore.update_attempt`."""
        fields = {
            "status": status,
            "worker_id": worker_id,
            "last_heartbeat_time": last_heartbeat_time,
            "metadata": metadata,
            "reason": UNSET if reason is None else reason,
        }
        body = encoded(fields, self.settings.max_input_bytes)
        answer = await self._transport.post(_attempt_path(rollout_id, attempt_id), body)
        return Attempt.checked(answer, "the server's answer")

    async def cancel_rollout(self, rollout_id: str, reason: str) -> Rollout:
        """End a rollout on purpose; see `StreamStore.cancel_rollout`."""
        body = encoded({"reason": reason}, self.settings.max_input_bytes)
        return rollout_of(await self._transport.post(f"rollouts/{segment(rollout_id)}/cancel", body))

    async def renew_attempt(self, rollout_id: str, attempt_id: str, *, lease_seconds: float | None = None) -> str:
        """Extend the lease of an attempt that is still worked on; see `StreamStore.renew_attempt`."""
        return (await self.renew_attempts([(rollout_id, attempt_id)], lease_seconds=lease_seconds))[0]

    async def renew_attempts(
        self, attempts: Sequence[tuple[str, str]], *, lease_seconds: float | None = None
    ) -> list[str]:
        """Extend the leases of many (rollout, attempt) pairs; see `StreamStore.renew_attempts`."""
        refs = [{"rollout_id": rollout_id, "attempt_id": attempt_id} for rollout_id, attempt_id in attempts]
        body = encoded({"attempts": refs, "lease_seconds": lease_seconds}, self.settings.max_request_bytes)
        return (await self._transport.post("leases/renew", body))["outcomes"]

    async def admit_call(self, rollout_id: str, attempt_id: str) -> int:
        """Admit a model call of an attempt; see `StreamStore.admit_call`."""
        return (await self._transport.post(f"{_attempt_path(rollout_id, attempt_id)}/admit"))["sequence_id"]

    async def rollout_sums(self, rollout_id: str) -> RolloutSums:
        """What the aggregator has folded of a rollout."""
        return RolloutSums(**await self._transport.get(f"rollouts/{segment(rollout_id)}/sums"))

    async def attempt_sums(self, rollout_id: str, attempt_id: str) -> RolloutSums:
        """What the aggregator has folded of an attempt."""
        return RolloutSums(**await self._transport.get(f"{_attempt_path(rollout_id, attempt_id)}/sums"))

    async def wait_for_rollouts(self, *, rollout_ids: Sequence[str], timeout: float | None = None) -> list[Rollout]:
        """The rollouts that are finished by the deadline, in the order asked; see `StreamStore.wait_for_rollouts`.

        The server holds the request and answers at once when all are finished: nothing is polled.
        """
        if timeout is not None and math.isnan(timeout):
            raise InvalidRequest(f"timeout must be a number of seconds or None, got {timeout}")
        deadline = None if timeout is None else clock.monotonic_s() + timeout
        found: dict[str, Rollout] = {}
        missing = list(dict.fromkeys(rollout_ids))
        while missing:
            left = LONGEST_WAIT_S if deadline is None else min(deadline - clock.monotonic_s(), LONGEST_WAIT_S)
            body = encoded({"rollout_ids": missing, "timeout": max(left, 0.0)}, self.settings.max_request_bytes)
            asked = clock.monotonic_s()
            finished = map(rollout_of, await self._transport.post("waits/rollouts", body, waits_s=max(left, 0.0)))
            found |= {rollout.rollout_id: rollout for rollout in finished}
            missing = [one for one in missing if one not in found]
            # Before its time the server answers only when no known rollout is left to wait for.
            if clock.monotonic_s() - asked < left or left <= 0:
                break
        return [found[one] for one in rollout_ids if one in found]


def _attempt_path(rollout_id: str, attempt_id: str) -> str:
    return f"rollouts/{segment(rollout_id)}/attempts/{segment(attempt_id)}"


def _rollout_json(request: EnqueueRolloutRequest, max_bytes: int) -> bytes:
    """One rollout of an enqueue, under an id of its own."""
    fields = {
        "input": request.input,
        "mode": request.mode,
        "resources_id": request.resources_id,
        "config": request.config,
        "metadata": request.metadata,
        "rollout_id": new_rollout_id() if request.rollout_id is None else request.rollout_id,
    }
    return encoded(fields, max_bytes)
