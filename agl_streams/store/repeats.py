"""Request keys: what makes a call safe to repeat by somebody who does not know whether the first try was carried out.

The caller makes one key per request and sends it with every try. All ids and tokens that the request needs are derived
from it, so a repeat names the same things and the functions answer it as they answered the first.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Self

from agl_streams.errors import InvalidRequest
from agl_streams.values import shown

MAX_KEY: Final = 256  # characters; a UUID has 36
_KEY_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class RequestKey:
    """One request."""

    text: str

    @classmethod
    def of(cls, key: str | None) -> Self:
        """The request of a caller's key; without one, a request that nobody will repeat.

        Raises:
            InvalidRequest: the key is empty or longer than `MAX_KEY` characters.
        """
        if key is None:
            return cls(secrets.token_hex(_KEY_BYTES))
        if not 0 < len(key) <= MAX_KEY:
            raise InvalidRequest(f"a request key has 1 to {MAX_KEY} characters, got {shown(key)}")
        return cls(key)

    @property
    def token(self) -> str:
        """What functions remember a request by: 16 hex digits."""
        return self._derive("token", 8)

    @property
    def rollout_id(self) -> str:
        """The id of the rollout that this request makes."""
        return f"ro-{self._derive('rollout', 6)}"

    @property
    def resources_id(self) -> str:
        """The id of the resources that this request makes."""
        return f"rs-{self._derive('resources', 6)}"

    def attempt_id(self, place: int = 0) -> str:
        """The id of the attempt that this request opens, or of the one at a place when it opens several."""
        return f"at-{self._derive(f'attempt {place}', 4)}"

    def attempt_ids(self, first: int, count: int) -> list[str]:
        """The ids of ``count`` attempts from the place ``first`` on."""
        return [self.attempt_id(place) for place in range(first, first + count)]

    def _derive(self, what: str, size: int) -> str:
        return blake2b(self.text.encode(), digest_size=size, person=what.encode()).hexdigest()
