"""Reports on rollouts and attempts: update, renew, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agl_streams import bodies
from agl_streams.errors import Changed, InvalidRequest, NotFound
from agl_streams.functions import ShardFunctions
from agl_streams.models import UNSET, Attempt, Rollout, RolloutConfig, RolloutMode, Unset
from agl_streams.projections import ATTEMPT, ROLLOUT, View, decode_attempt, decode_rollout
from agl_streams.store import requests
from agl_streams.store.base import StoreBase
from agl_streams.store.work import bare
from agl_streams.values import check_resources_id, shown

RENEW_LIMIT: Final = 200  # leases in one call: 2 ms of the server's time at most
BODY_TRIES: Final = 100  # a body changed that often between reading and writing means that its callers fight


@dataclass(frozen=True, slots=True)
class _BodyChange:
    """The part of an update that is opaque to functions: it is read, changed and written back under its version."""

    input: Any
    config: RolloutConfig | Unset
    metadata: dict[str, Any] | Unset | None

    def any(self) -> bool:
        return any(value is not UNSET for value in (self.input, self.config, self.metadata))

    def apply(self, old: bodies.RolloutBody) -> bodies.RolloutBody:
        return bodies.RolloutBody(
            input=old.input if self.input is UNSET else self.input,
            config=old.config if self.config is UNSET else self.config,
            metadata=old.metadata if self.metadata is UNSET else self.metadata,
        )


class ReportsMixin(StoreBase):
    """What moves on and what ends."""

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
        """Replace fields of a rollout; UNSET leaves one as it is.

        A finished status settles queue entry and deadline; ``queuing`` and ``requeuing`` put the rollout on the queue
        exactly once.

        Raises:
            NotFound: no such rollout.
            InvalidRequest, TooLarge: the message names the field and the value.
        """
        requests.known_form(rollout_id)
        fields: dict[str, str] = {}
        if mode is not UNSET:
            fields["mode"] = "" if mode is None else requests.one_of(mode, requests.MODES, "mode")
        if resources_id is not UNSET:
            fields["resources"] = "" if resources_id is None else check_resources_id(resources_id)
        if config is not UNSET:
            fields |= _config_changes(config)
        if metadata is not UNSET and metadata is not None:
            metadata = requests.metadata_dict(metadata)
        word = "" if status is UNSET else requests.one_of(status, requests.ROLLOUT_STATUSES, "status")
        change = _BodyChange(input, config, metadata)
        view = await self._write_rollout(rollout_id, change, word, fields)
        return bare(decode_rollout(view))

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
        """Record what a runner or an operator says of an attempt (``latest`` is the newest).

        The newest attempt of an unfinished rollout moves the rollout; any other report is stored and changes nothing
        else. An equal report on a closed attempt is a repeat, and succeeds.

        Raises:
            NotFound: no such rollout or attempt.
            InvalidRequest, TooLarge: the message names the field and the value.
        """
        requests.known_form(rollout_id)
        requests.known_form(attempt_id)
        body = b""
        if metadata is not UNSET:
            content = requests.metadata_dict(metadata)
            body = bodies.encode_json(content, "metadata", self.settings.max_input_bytes)
        heartbeat = last_heartbeat_time
        arguments = {
            "status": "" if status is UNSET else requests.one_of(status, requests.ATTEMPT_STATUSES, "status"),
            "worker": "" if worker_id in (UNSET, "") else self._worker(worker_id),
            "heartbeat_us": "" if heartbeat is UNSET else requests.time_us(heartbeat, "last_heartbeat_time"),
            "reason": requests.reason_text(reason),
        }
        view = await self._functions_update_attempt(rollout_id, attempt_id, arguments, body)
        return decode_attempt(rollout_id, view)

    async def cancel_rollout(self, rollout_id: str, reason: str) -> Rollout:
        """End a rollout on purpose: its newest open attempt fails with the reason, its calls are refused from now on.

        Raises:
            NotFound: no such rollout.
            InvalidRequest: no reason.
        """
        text = requests.reason_text(reason)
        if not text.strip():
            raise InvalidRequest(f"cancelling rollout {rollout_id!r} needs a reason: it is what its owner will read")
        view = await self.functions_of(requests.known_form(rollout_id)).cancel(rollout_id, text)
        return decode_rollout(view)

    async def renew_attempt(self, rollout_id: str, attempt_id: str, *, lease_seconds: float | None = None) -> str:
        """Extend the lease of an attempt that is still worked on.

        Returns:
            ``renewed``; or ``superseded``, ``ended``, ``not_found_attempt``: then the runner stops the agent.
        """
        lease = self._lease_us if lease_seconds is None else self._lease(lease_seconds)
        functions = self.functions_of(requests.known_form(rollout_id))
        return (await functions.renew([(rollout_id, requests.known_form(attempt_id))], lease))[0]

    async def renew_attempts(
        self, attempts: Sequence[tuple[str, str]], *, lease_seconds: float | None = None
    ) -> list[str]:
        """Extend the leases of many (rollout, attempt) pairs, one call per shard and two hundred.

        Returns:
            For each pair in order what `renew_attempt` returns.
        """
        lease = self._lease_us if lease_seconds is None else self._lease(lease_seconds)
        outcomes = ["not_found_attempt"] * len(attempts)
        for functions in self._functions:
            mine = [at for at, pair in enumerate(attempts) if _is_mine(self, functions, pair)]
            for first in range(0, len(mine), RENEW_LIMIT):
                batch = mine[first : first + RENEW_LIMIT]
                for at, word in zip(batch, await functions.renew([attempts[at] for at in batch], lease), strict=True):
                    outcomes[at] = word
        return outcomes

    async def _functions_update_attempt(
        self, rollout_id: str, attempt_id: str, arguments: dict[str, str], body: bytes
    ) -> View:
        functions, deliveries = self.functions_of(rollout_id), self.settings.max_deliveries
        for _ in range(BODY_TRIES):
            version = await self._attempt_body_version(rollout_id, attempt_id) if body else ""
            try:
                return await functions.update_attempt(
                    rollout_id, attempt_id, **arguments, body_version=version, body=body, max_deliveries=deliveries
                )
            except Changed:
                continue
        raise Changed(f"the metadata of attempt {attempt_id!r} of {rollout_id!r} changes faster than it can be written")

    async def _attempt_body_version(self, rollout_id: str, attempt_id: str) -> str:
        functions = self.functions_of(rollout_id)
        if attempt_id != "latest":
            return _version(ATTEMPT, await functions.read_attempt(rollout_id, attempt_id))
        view = (await functions.read_rollouts([rollout_id]))[0]
        return _version(ATTEMPT, view[3]) if view and view[3] else NO_BODY

    async def _write_rollout(self, rollout_id: str, change: _BodyChange, status: str, fields: dict[str, str]) -> View:
        functions = self.functions_of(rollout_id)
        if not change.any():
            return await functions.update_rollout(rollout_id, status=status, fields=fields)
        for _ in range(BODY_TRIES):
            old = (await functions.read_rollouts([rollout_id]))[0]
            if old is None:
                raise NotFound(f"update_rollout({rollout_id!r}): there is no such rollout")
            version = _version(ROLLOUT, old)
            body = change.apply(bodies.decode_rollout(old[2]))
            data = bodies.encode_rollout(body, self.settings.max_input_bytes)
            try:
                return await functions.update_rollout(
                    rollout_id, status=status, body_version=version, body=data, fields=fields
                )
            except Changed:
                continue
        raise Changed(f"rollout {rollout_id!r} changes faster than it can be written")


NO_BODY: Final = "0"


def _is_mine(store: StoreBase, functions: ShardFunctions, pair: tuple[str, str]) -> bool:
    """Whether an attempt would be in a shard; one whose ids have another form is in none."""
    return all(map(requests.is_known_form, pair)) and store.functions_of(pair[0]) is functions


def _version(names: tuple[str, ...], view: View) -> str:
    """The version of the body that a view shows."""
    value = view[1][names.index("body")]
    return NO_BODY if value is None else value.decode()


def _config_changes(config: object) -> dict[str, str]:
    """The rules of a rollout, under the names that the projection has for them."""
    if not isinstance(config, RolloutConfig):
        raise InvalidRequest(f"config must be a RolloutConfig, got {shown(config)}")
    fields = requests.config_fields(config)
    names = {"timeout_us": "timeout", "unresponsive_us": "unresponsive", "max_attempts": "max", "retry": "retry"}
    return {names[name]: str(value) for name, value in fields.items()}
