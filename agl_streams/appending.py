"""Group commit: spans that arrive while a call is on its way leave together in the next one.

A span that finds the way free goes at once and alone, so nobody waits for company. Under load, as in a proxy, one call
of the function after the other carries the spans of many callers: the fixed costs of a call (system calls, the
function's opening, the append-only file) are shared. A call that is repeated after a lost reply repeats all of them,
and each span finds the token of its own request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from agl_streams.errors import outcome_error
from agl_streams.wire import Arg

GROUPS_LIMIT: Final = 64  # attempts in one call: each costs some 25 µs, and a call shall take no longer than 2 ms


class NewSpan(NamedTuple):
    """A span as ``append_spans`` takes it, in its order.

    Attributes:
        sequence: its number, or '' to be given the next one.
        first_us, last_us: start and end in microseconds, '' for none.
        sums: '' or ``calls,prompt,completion,incomplete,rewards,reward``.
        payload: the opaque stored form.
    """

    span_id: str
    sequence: str
    first_us: str
    last_us: str
    sums: str
    payload: bytes


class Group(NamedTuple):
    """Spans of one attempt and one request, small enough for one call.

    Attributes:
        length: number of spans.
        args: the spans in the order of ``append_spans.lua``, one after the other.
        size: bytes of the payloads.
    """

    rollout_id: str
    attempt_id: str
    length: int
    args: list[Arg]
    size: int

    @classmethod
    def of(cls, rollout_id: str, attempt_id: str, spans: Sequence[NewSpan], token: str) -> Self:
        """The spans of a request. Each takes its token along, by which a repeat is told from a duplicate."""
        mark = f"|{token}|".encode()
        args: list[Arg] = [
            part
            for span_id, sequence, first, last, sums, payload in spans
            for part in (span_id, sequence, first, last, sums, b"".join((sequence.encode(), mark, payload)))
        ]
        return cls(rollout_id, attempt_id, len(spans), args, sum(len(span.payload) for span in spans))

    def numbers(self, reply: list[Any]) -> list[int | None]:
        """What the function answered to this group.

        Raises:
            NotFound: no such rollout or attempt.
        """
        if reply[0] != b"ok":
            raise outcome_error(reply[0].decode(), "append_spans", [self.rollout_id, self.attempt_id])
        return [None if number is None else int(number) for number in reply[1:]]


Waiting = tuple[Group, asyncio.Future[list[Any]]]
"""A group, and where its caller waits for the reply."""


class SpanAppender:
    """Sends the groups of one shard, those that wait together."""

    def __init__(
        self, send: Callable[[list[Arg]], Awaitable[list[Any]]], *, spans_limit: int, bytes_limit: int
    ) -> None:
        """
        Args:
            send: calls the function with the arguments of some groups and returns their replies.
            spans_limit, bytes_limit: what one call may carry.
        """
        self._send = send
        self._spans_limit = spans_limit
        self._bytes_limit = bytes_limit
        self._under_way = False
        self._waiting: deque[Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def append(self, group: Group) -> list[int | None]:
        """Store a group; per span its sequence number, or None for one that was there before. Errors of ``send``."""
        if self._under_way:
            answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._waiting.append((group, answered))
            return group.numbers(await answered)
        self._under_way = True
        try:
            (reply,) = await self._send(_args([group]))
        finally:
            self._done()
        return group.numbers(reply)

    def _done(self) -> None:
        """A call has ended: those who wait go next."""
        self._under_way = False
        batch = self._take()
        if batch:
            self._under_way = True
            task = asyncio.get_running_loop().create_task(self._send_together(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[Waiting]:
        """The groups that fit into the next call, oldest first; at least one, if one waits."""
        batch: list[Waiting] = []
        spans = size = 0
        while self._waiting and len(batch) < GROUPS_LIMIT:
            group, answered = self._waiting[0]
            spans, size = spans + group.length, size + group.size
            if batch and (spans > self._spans_limit or size > self._bytes_limit):
                break
            self._waiting.popleft()
            if not answered.cancelled():
                batch.append((group, answered))
        return batch

    async def _send_together(self, batch: list[Waiting]) -> None:
        """One call for a batch; what it holds of one attempt is one group of the function's, and one event."""
        attempts: dict[tuple[str, str], list[Waiting]] = {}
        for group, answered in batch:
            attempts.setdefault((group.rollout_id, group.attempt_id), []).append((group, answered))
        try:
            replies = await self._send(_args([_joined(groups) for groups in attempts.values()]))
        except BaseException as error:  # noqa: BLE001 — handed to each caller, who raises it
            for _, answered in batch:
                if not answered.done():
                    answered.set_exception(error)
        else:
            for groups, reply in zip(attempts.values(), replies, strict=True):
                _answer(groups, reply)
        finally:
            self._done()


def _args(groups: Iterable[Group]) -> list[Arg]:
    """In the order of ``append_spans.lua``."""
    args: list[Arg] = []
    for group in groups:
        args += (group.rollout_id, group.attempt_id, group.length)
        args += group.args
    return args


def _joined(groups: list[Waiting]) -> Group:
    first = groups[0][0]
    if len(groups) == 1:
        return first
    args = [arg for group, _ in groups for arg in group.args]
    return first._replace(length=sum(group.length for group, _ in groups), args=args)


def _answer(groups: list[Waiting], reply: list[Any]) -> None:
    """Each caller gets the numbers of its own spans, or the word that holds for all of the attempt."""
    at = 1
    for group, answered in groups:
        mine = [reply[0], *reply[at : at + group.length]]
        at += group.length
        if not answered.done():
            answered.set_result(mine)
