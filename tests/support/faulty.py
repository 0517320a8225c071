"""A connection that repeats writing calls, as after a lost reply, or "crashes" its process before or after one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from agl_streams.config import Settings
from agl_streams.connection import Arg, RedisConnection, Reply

CLOCK_AT = 4  # FCALL, function, number of keys, key, clock, ...


class Crashed(Exception):
    """The process ended here: its caller never got an answer."""


@dataclass(frozen=True)
class Fault:
    """What happens to the writing calls of one operation of a store.

    Attributes:
        kind: ``repeat``: each is carried out, its reply is lost, and it is sent again; ``crash_before`` and
            ``crash_after``: the process ends before sending, or after sending, the call number ``at``.
    """

    kind: Literal["none", "repeat", "crash_before", "crash_after"] = "none"
    at: int = 1


NO_FAULT = Fault()


class FaultyConnection(RedisConnection):
    """A real connection, with faults on demand.

    Attributes:
        fault: what happens to the next writing calls.
        done: writing calls that were carried out since the fault was set; repeats are not counted.
        sent: the calls that were carried out with success, in order, each with its reply.
    """

    def __init__(self, url: str, settings: Settings | None) -> None:
        super().__init__(url, settings)
        self.fault = NO_FAULT
        self.done = 0
        self.sent: list[tuple[tuple[Arg, ...], list[Any]]] = []

    def set_fault(self, fault: Fault) -> None:
        """Begin a new operation."""
        self.fault, self.done = fault, 0

    async def execute(self, *args: Arg, near: Arg | None = None) -> Reply:
        """Send a command, with the fault if it writes."""
        if args[0] != b"FCALL":
            return await super().execute(*args, near=near)
        if self.fault == Fault("crash_before", self.done + 1):
            raise Crashed(command_of(args))
        reply = cast("list[Any]", await super().execute(*args, near=near))
        self.done += 1
        if reply[0] == b"ok":
            self.sent.append((args, reply))
        if self.fault == Fault("crash_after", self.done):
            raise Crashed(command_of(args))
        return await super().execute(*args, near=near) if self.fault.kind == "repeat" else reply

    async def send_again(self, args: tuple[Arg, ...], clock: Arg) -> Reply:
        """Send a call once more at another time, as a stray duplicate."""
        return await super().execute(*args[:CLOCK_AT], clock, *args[CLOCK_AT + 1 :])


def command_of(args: tuple[Arg, ...]) -> str:
    """The command that an FCALL names: ``agl_<schema>_<hash>_<command>``."""
    name = args[1]
    assert isinstance(name, bytes)
    return name.decode().split("_", 3)[3]
