"""`enqueue`: inputs go on the queue, from the command line, from a file or from a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from agl_streams.cli.app import app
from agl_streams.cli.options import DataDir, JsonOutput, Namespace, RedisUrl
from agl_streams.cli.terminal import ServerUrl, remark, run, target_of, write, write_json
from agl_streams.errors import AglError, InvalidRequest
from agl_streams.models import EnqueueRolloutRequest, RolloutConfig
from agl_streams.values import new_rollout_id, read_json

if TYPE_CHECKING:
    from agl_streams.connect import Store

LINES: Final = 500
BYTES: Final = 4 * 1024 * 1024
"""What is read before it is sent: so much of a file is in memory at a time."""
STANDARD_INPUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class _Line:
    """One input.

    Attributes:
        place: where it was, for messages.
    """

    place: str
    data: bytes
    rollout_id: str


@app.command()
def enqueue(
    input: Annotated[str | None, typer.Argument(metavar="JSON", help="The input of one rollout, any JSON.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="JSON lines, one input a line; - is standard input.", exists=False),
    ] = None,
    mode: Annotated[str | None, typer.Option(help="train, val or test.")] = None,
    resources_id: Annotated[str | None, typer.Option(help="Resources. Default: the latest.")] = None,
    rollout_id: Annotated[
        str | None,
        typer.Option(help="Id of the one rollout; of lines the beginning, before - and the line's number."),
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(min=1, help="How often it may be tried. Default: 1.")] = None,
    retry_on: Annotated[
        list[str] | None, typer.Option(help="Try again after: failed, timeout, unresponsive; may be repeated.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="An attempt may take so long.")] = None,
    unresponsive: Annotated[float | None, typer.Option(metavar="SECONDS", help="... and be silent so long.")] = None,
    metadata: Annotated[str | None, typer.Option(metavar="JSON", help="An object, the same for all.")] = None,
    server: ServerUrl = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """Put rollouts on the queue and print their ids, in order.

    Without JSON and --file, lines are read from standard input. With --rollout-id the same command may be given
    again: what is on the queue stays as it is. A line that is no input ends the command; those before it are enqueued.
    """
    config = {
        "max_attempts": max_attempts,
        "retry_condition": retry_on or None,
        "timeout_seconds": timeout,
        "unresponsive_seconds": unresponsive,
    }
    config = {name: value for name, value in config.items() if value is not None}
    common: dict[str, Any] = {
        "mode": mode,
        "resources_id": resources_id,
        "config": RolloutConfig.checked(config, "the options") if config else None,
        "metadata": read_json(metadata) if metadata is not None else None,
    }
    EnqueueRolloutRequest.checked({**common, "input": None}, "the options")
    if input is not None and file is not None:
        raise InvalidRequest("JSON and --file both give inputs: give one of them")

    async def work(store: Store) -> int:
        sender = _Sender(store, common, json_output)
        with contextlib.ExitStack() as stack:
            if input is not None:
                lines = iter([_Line("JSON", input.encode(), rollout_id or new_rollout_id())])
            else:
                lines = _lines(stack.enter_context(_opened(file or STANDARD_INPUT)), file, rollout_id)
            await sender.send_all(lines)
        return 0

    run(target_of(redis_url, namespace, data_dir, server), work)


@contextlib.contextmanager
def _opened(file: Path) -> Generator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error
    with stream:
        yield stream


def _lines(stream: BinaryIO, file: Path | None, rollout_id: str | None) -> Iterator[_Line]:
    """The lines that hold something."""
    name = "standard input" if file in (None, STANDARD_INPUT) else str(file)
    for number, data in enumerate(stream, start=1):
        if data.strip():
            its_id = new_rollout_id() if rollout_id is None else f"{rollout_id}-{number}"
            yield _Line(f"line {number} of {name}", data.strip(), its_id)


class _Sender:
    """Sends lines in bulk, and tells which one was wrong."""

    def __init__(self, store: Store, common: dict[str, Any], json_output: bool) -> None:
        self._store = store
        self._common = common
        self._json = json_output
        self._sent = 0

    async def send_all(self, lines: Iterator[_Line]) -> None:
        """All lines, up to the first that is wrong.

        Raises:
            InvalidRequest: that one, with its place; those before it are enqueued.
        """
        try:
            await self._send_all(lines)
        except AglError:
            if self._sent:
                remark(f"enqueued before the error: {self._sent:,} rollouts")
            raise

    async def _send_all(self, lines: Iterator[_Line]) -> None:
        batch: list[tuple[_Line, EnqueueRolloutRequest]] = []
        size = 0
        for line in lines:
            try:
                request = self._request(line)
            except InvalidRequest:
                await self._send(batch)
                raise
            batch.append((line, request))
            size += len(line.data)
            if len(batch) == LINES or size >= BYTES:
                await self._send(batch)
                batch, size = [], 0
        await self._send(batch)

    def _request(self, line: _Line) -> EnqueueRolloutRequest:
        try:
            fields = {**self._common, "input": read_json(line.data), "rollout_id": line.rollout_id}
            return EnqueueRolloutRequest.checked(fields, "rollout")
        except InvalidRequest as error:
            raise InvalidRequest(f"{line.place}: {error}") from error

    async def _send(self, batch: list[tuple[_Line, EnqueueRolloutRequest]]) -> None:
        """One batch; where the store refuses it, one by one up to the one that is meant."""
        if not batch:
            return
        try:
            await self._enqueue([request for _, request in batch])
        except InvalidRequest as refused:
            if len(batch) == 1:
                raise type(refused)(f"{batch[0][0].place}: {refused}") from refused
            for one in batch:
                await self._send([one])

    async def _enqueue(self, requests: list[EnqueueRolloutRequest]) -> None:
        for rollout in await self._store.enqueue_many_rollouts(requests):
            self._sent += 1
            if self._json:
                write_json(rollout)
            else:
                write(rollout.rollout_id)
