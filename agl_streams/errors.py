"""Every error of the project, and the one table from a function's outcome word to its error.

AglError
├── InvalidRequest (ValueError)      bad input; nothing was changed
│   ├── ConfigError                  a setting or flag is wrong
│   └── TooLarge                     a limit of the store would be passed
├── NotFound (ValueError)            no such rollout, attempt, worker or resources
├── Conflict (ValueError)            the thing exists, but its state forbids the call
│   ├── Changed                      it was changed between reading and writing
│   ├── AttemptEnded                 the attempt is over; its agent should stop
│   └── Superseded                   a newer attempt owns the rollout; the caller is fenced off
├── StoreUnavailable                 the server cannot serve this call now; retrying later may help
│   ├── OutOfMemory                  the server is at maxmemory: intake stops, the rest goes on
│   ├── ServerReadOnly               connected to a replica
│   └── NotReplicated                fewer replicas acknowledged than AGL_MIN_REPLICAS asks for
├── ServerRefused                    the server can never serve us as it is configured
│   ├── AuthenticationFailed
│   └── ServerTooOld
├── NamespaceError                   the namespace in the server does not fit this process
│   ├── WrongShardCount
│   ├── ForeignKey                   a key in the way that is not ours
│   ├── Upgrade                      a newer release has written here
│   └── Gap                          the log misses an event; folding on would lie
├── WrongLoop                        a client used after fork or from another event loop
├── EngineError                      the embedded server could not be started, joined or stopped
├── CommandFailed                    an error reply of the server that is none of the above
├── CaptureError                     a model call could not be recorded
└── AgentError                       the agent gave something that is not a result

Errors that Agent-lightning raises as ``ValueError`` are ``ValueError`` here too, so code written for it keeps working.
"""

from __future__ import annotations

from collections.abc import Sequence


class AglError(Exception):
    """The root of all errors that this project raises on purpose."""


class InvalidRequest(AglError, ValueError):
    """The caller's input is wrong. Nothing was changed."""


class ConfigError(InvalidRequest):
    """A setting (``AGL_*`` variable or flag) does not validate."""


class TooLarge(InvalidRequest):
    """An input, metadata, span or request is above its limit. Refused before a byte is sent."""


class NotFound(AglError, ValueError):
    """No rollout, attempt, worker or resources of that id."""


class Conflict(AglError, ValueError):
    """The state of the thing forbids the call."""


class Changed(Conflict):
    """The thing was changed between reading and writing: read it again. Handled inside the store."""


class AttemptEnded(Conflict):
    """The attempt is finished, lost or cancelled: its agent should stop."""


class Superseded(Conflict):
    """A newer attempt owns the rollout: this one is fenced off."""


class StoreUnavailable(AglError):
    """The server cannot be reached or cannot serve this call now. Retrying later may help."""


class OutOfMemory(StoreUnavailable):
    """The server is at its ``maxmemory``: intake stops until memory is freed."""


class ServerReadOnly(StoreUnavailable):
    """The server is a replica, or writes are disabled on it."""


class NotReplicated(StoreUnavailable):
    """Fewer replicas acknowledged the write than ``AGL_MIN_REPLICAS`` asks for."""


class ServerRefused(AglError):
    """The server can never serve us as it is configured."""


class AuthenticationFailed(ServerRefused):
    """The server needs a password, or refuses the one that was given."""


class ServerTooOld(ServerRefused):
    """The server lacks Redis Functions (Redis 7.0, Valkey 7.2)."""


class NamespaceError(AglError):
    """The namespace in the server does not fit this process."""


class WrongShardCount(NamespaceError):
    """The namespace was created with another number of shards."""


class ForeignKey(NamespaceError):
    """A key with one of our names exists and is not ours."""


class Upgrade(NamespaceError):
    """A newer release has written to this namespace; this one would misread it."""


class Gap(NamespaceError):
    """The log misses an event, so a fold of it would be wrong."""


class WrongLoop(AglError):
    """A client is used after a fork or from another event loop than its own."""


class EngineError(AglError):
    """The embedded server could not be started, joined or stopped."""


class CommandFailed(AglError):
    """An error reply of the server that maps to none of the others.

    Attributes:
        code: first word of the reply, e.g. ``NOGROUP``.
        detail: the whole reply.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"the server answered {detail!r}")
        self.code = code
        self.detail = detail


class CaptureError(AglError):
    """A model call could not be recorded, so it must not pass for training data."""


class AgentError(AglError):
    """An agent returned something that is not a result."""


OUTCOMES: dict[str, tuple[type[AglError], str]] = {
    "not_found_rollout": (NotFound, "there is no such rollout"),
    "not_found_attempt": (NotFound, "the rollout has no such attempt"),
    "not_dead": (
        Conflict,
        "the rollout is on no stream of dead ones: it was never given up, or has been queued again or dropped since",
    ),
    "ended": (AttemptEnded, "the attempt has ended or its rollout is finished; its agent should stop"),
    "superseded": (Superseded, "a newer attempt owns the rollout; this one is fenced off and should stop"),
    "changed": (Changed, "it was changed by somebody else in between; read it again"),
    "no_namespace": (
        NamespaceError,
        "the namespace vanished twice while it was used; is somebody flushing the server?",
    ),
    "wrong_shards": (
        WrongShardCount,
        "the namespace was created with another shard count (the first value); set AGL_SHARDS to it, or use another "
        "AGL_NAMESPACE",
    ),
    "foreign_key": (
        ForeignKey,
        "a key of another kind stands where this namespace's keys go; use another AGL_NAMESPACE or another database",
    ),
    "upgrade": (Upgrade, "a newer release has written to this namespace; upgrade agl-streams here"),
    "gap": (Gap, "the log misses an event before this id; rebuild the namespace from its archive"),
    "unknown_event": (
        Upgrade,
        "the log has an event of a type that this release does not know; upgrade agl-streams here",
    ),
}
"""What each outcome word of the functions means. ``ok`` and the words of ``renew`` are answers, not errors."""

_SHOWN_ARGS = 6  # enough to see ids; the rest may be long payloads
_SHOWN_CHARACTERS = 80


def outcome_error(word: str, command: str, args: Sequence[str]) -> AglError:
    """The error for an outcome word of a function, naming the command, what it replied, and what it was called with."""
    kind, text = OUTCOMES[word]
    shown = ", ".join(repr(arg[:_SHOWN_CHARACTERS]) for arg in args[:_SHOWN_ARGS] if arg)
    return kind(f"{command}({shown}): {text}")
