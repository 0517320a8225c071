"""Runs one scenario of calls on two servers and compares what the client made of the answers.

What a server chooses by itself is named by its order of appearance: the first rollout id is ``ro#1`` on both, the first
random span id ``span#1``; a time of this hour is ``now``. Everything else must be equal, down to int against float,
unless `tests.conformance.differences` allows it and says why.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from agentlightning import LightningStoreClient
from agentlightning.types import PaginatedResult
from pydantic import BaseModel

from tests.conformance.differences import ABSENT, Difference

HOUR_S = 3600.0
MADE_IDS = {
    "ro": re.compile(r"ro-[0-9a-f]{12}"),
    "at": re.compile(r"at-[0-9a-f]{8}"),
    "rs": re.compile(r"rs-[0-9a-f]{12}"),
    "trace": re.compile(r"[0-9a-f]{32}"),
    "span": re.compile(r"[0-9a-f]{16}"),
}
Scenario = Callable[[LightningStoreClient, "Notes"], Awaitable[None]]


class Notes:
    """What one server answered, under labels that the scenario gives."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    async def __call__(self, label: str, call: Awaitable[Any]) -> Any:
        """Note what a call gives, or how it fails, and return it; None when it fails."""
        try:
            result = await call
        except aiohttp.ClientResponseError as error:
            self.value(label, f"HTTP {error.status}")
        except Exception as error:  # noqa: BLE001  whatever the client raises is what is compared
            self.value(label, f"{type(error).__name__}: {error}")
        else:
            self.value(label, result)
            return result
        return None

    def value(self, label: str, value: Any) -> None:
        """Note a value."""
        assert label not in self.entries, f"the scenario gives the label {label!r} twice"
        self.entries[label] = self._plain(value)

    def _plain(self, value: Any) -> Any:
        match value:
            case BaseModel():
                found = {name: getattr(value, name) for name in type(value).model_fields} | (value.model_extra or {})
                # Pages are compared by what they hold: whether an item has an attempt shows in its fields.
                return self._plain(found if isinstance(value, PaginatedResult) else {"": type(value).__name__, **found})
            case dict():
                return {self._named(str(key)): self._plain(one) for key, one in value.items()}
            case list() | tuple():
                return [self._plain(one) for one in value]
            case str():
                return self._named(value)
            case float() if abs(value - time.time()) < HOUR_S:
                return "now"
            case _:
                return value

    def _named(self, text: str) -> str:
        for kind, pattern in MADE_IDS.items():
            if pattern.fullmatch(text):
                count = sum(name.startswith(f"{kind}#") for name in self._names.values())
                return self._names.setdefault(text, f"{kind}#{count + 1}")
        return text


@dataclass(frozen=True)
class Both:
    """Our server and agentlightning's own, both empty.

    Attributes:
        differences: what this test may find.
    """

    ours: str
    theirs: str
    differences: list[Difference]

    async def same(self, scenario: Scenario) -> None:
        """Run the scenario on both and compare.

        Raises:
            AssertionError: an answer differs that may not, or one does not differ that is said to.
        """
        there, here = [dict(leaves(await noted(url, scenario))) for url in (self.theirs, self.ours)]
        met: set[Difference] = set()
        lines: list[str] = []
        for path in there | here:
            pair = there.get(path, ABSENT), here.get(path, ABSENT)
            allowed = [one for one in self.differences if one.covers(path, *pair)]
            met.update(allowed)
            if pair[0] != pair[1] and not allowed:
                lines.append(f"{path}\n    there: {pair[0]}\n    here:  {pair[1]}")
        lines += [f"no answer differs as {one} says" for one in self.differences if one not in met]
        assert not lines, "\n".join(["answers differ otherwise than differences.py says:", *lines])


async def noted(url: str, scenario: Scenario) -> dict[str, Any]:
    """What a scenario notes on one server. The client does not try again: a 500 shows at once."""
    client = LightningStoreClient(url, retry_delays=(), health_retry_delays=())
    notes = Notes()
    try:
        await scenario(client, notes)
    finally:
        await client.close()
    assert notes.entries, "the scenario has noted nothing"
    return notes.entries


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The single values below a value, by path, as Python writes them; an empty container is one too."""
    if isinstance(value, (dict, list)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from leaves(one, f"{path}.{key}" if path else str(key))
    else:
        yield path, repr(value)
