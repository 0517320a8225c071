"""Looking at rollouts, putting them on the queue and ending them from a terminal or a script."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agl_streams.cli.terminal import EXIT_PIPE
from agl_streams.config import Settings
from agl_streams.models import EnqueueRolloutRequest, RolloutConfig
from agl_streams.store import StreamStore
from tests.server.conftest import serving
from tests.support.command_line import COMMAND_LINE, Shell, run
from tests.support.spans import model_call, reward


@pytest.fixture
def shell(settings: Settings) -> Shell:
    """Commands on the namespace of the test."""
    return Shell(settings)


async def rewarded(store: StreamStore, rollout_id: str) -> str:
    """A rollout that succeeds with a model call and a reward; the id of its attempt."""
    await store.enqueue_rollout({"q": "é"}, mode="train", rollout_id=rollout_id)
    taken = await store.dequeue_rollout("w")
    assert taken is not None
    ids: dict[str, Any] = {"rollout_id": rollout_id, "attempt_id": taken.attempt.attempt_id}
    await store.add_many_spans([model_call(1, **ids), reward(2, 0.5, **ids)])
    await store.update_attempt(rollout_id, taken.attempt.attempt_id, "succeeded", reason="good\x1b[31m")
    await store.settle()
    return taken.attempt.attempt_id


async def test_the_newest_rollouts_are_listed(store: StreamStore, shell: Shell) -> None:
    """A row has status, attempts, mode, reward and spans; the newest is first, and others can be asked for."""
    await rewarded(store, "first")
    await store.enqueue_rollout(1, rollout_id="second")
    heading, *rows = shell.lines("ls")
    assert heading.split() == ["rollout", "status", "attempts", "mode", "start", "duration", "reward", "spans"]
    assert [row.split()[0] for row in rows] == ["second", "first"]
    assert rows[1].split()[1:4] == ["succeeded", "1", "train"]
    assert rows[1].split()[-2:] == ["0.5", "2"]
    assert [one["rollout_id"] for one in shell.json("ls", "--ascending")] == ["first", "second"]
    (only,) = shell.json("ls", "--status", "succeeded")
    assert only["attempt"]["sequence_id"] == 1
    assert only["sums"]["reward"] == 0.5


async def test_a_list_is_narrowed_and_paged(store: StreamStore, shell: Shell) -> None:
    """Filters by status, mode and part of the id, limit and offset work together; what is left out is said."""
    for number in range(6):
        mode = "val" if number % 2 else "train"
        await store.enqueue_rollout(number, mode=mode, rollout_id=f"r{number}")
    await store.cancel_rollout("r1", "x")

    def ids(*flags: str) -> list[str]:
        return [one["rollout_id"] for one in shell.json("ls", *flags)]

    assert ids("--mode", "val") == ["r5", "r3", "r1"]
    assert ids("--mode", "val", "--offset", "1", "--limit", "1") == ["r3"]
    assert ids("--mode", "val", "--status", "cancelled", "--status", "queuing", "--limit", "-1") == ["r5", "r3", "r1"]
    assert ids("--id", "4") == ["r4"]
    assert ids("--limit", "2", "--offset", "3") == ["r2", "r1"]
    assert ids("--sort", "rollout_id", "--ascending", "--limit", "2") == ["r0", "r1"]
    assert "2 of 6" in shell.run("ls", "--limit", "2").stderr


async def test_many_rollouts_are_listed_in_pages(store: StreamStore, shell: Shell) -> None:
    """A list longer than a page of the command is whole, and each rollout is in it once."""
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, mode="val") for n in range(450)])
    found = [one["rollout_id"] for one in shell.json("ls", "--limit", "-1")]
    assert len(found) == len(set(found)) == 450
    assert len(shell.json("ls", "--mode", "val", "--limit", "-1")) == 450
    assert len(shell.json("ls", "--limit", "250")) == 250


async def test_a_row_is_a_line_on_a_narrow_terminal(store: StreamStore, shell: Shell) -> None:
    """Without a terminal a table is not cut, wrapped or coloured, however few columns are said to be there."""
    name = "long-" + "x" * 100
    await store.enqueue_rollout(1, rollout_id=name)
    await store.cancel_rollout(name, "its duration stands still")
    narrow = shell.run("ls", columns=40).stdout
    assert narrow == shell.run("ls", columns=300).stdout
    assert name in narrow
    assert "\x1b" not in narrow


async def test_a_rollout_is_shown(store: StreamStore, shell: Shell) -> None:
    """Input, rules, sums, attempts and last spans are shown, and no control character of anybody's text."""
    attempt_id = await rewarded(store, "r")
    shown = "\n".join(shell.lines("show", "r"))
    assert '{"q":"é"}' in shown
    assert "2 spans, 1 model calls" in shown
    assert attempt_id in shown
    assert r"good\x1b[31m" in shown
    assert "\x1b" not in shown
    (document,) = shell.json("show", "r")
    assert document["rollout"]["input"] == {"q": "é"}
    assert [one["attempt_id"] for one in document["attempts"]] == [attempt_id]
    assert [one["sequence_id"] for one in document["spans"]["last"]] == [1, 2]
    assert document["dead"] is None


async def test_what_does_not_exist_is_an_error(store: StreamStore, shell: Shell) -> None:
    """An unknown rollout, sort field or status ends with exit code 2 and one line that names it."""
    for arguments, told in (
        (("show", "nobody"), "'nobody'"),
        (("ls", "--sort", "colour"), "colour"),
        (("ls", "--status", "happy"), "happy"),
        (("ls", "--limit", "0"), "Limit must be greater than 0"),
        (("ls", "--server", "http://localhost:1"), "--redis-url"),
    ):
        failed = shell.run(*arguments)
        assert (failed.returncode, failed.stdout) == (2, ""), arguments
        (line,) = failed.stderr.splitlines()
        assert line.startswith("error: ")
        assert told in line


async def test_an_input_is_enqueued_with_its_rules(store: StreamStore, shell: Shell) -> None:
    """Mode, resources, id, rules and metadata of the options are those of the rollout, and its id is printed."""
    flags = ("--mode", "val", "--resources-id", "rs", "--rollout-id", "mine", "--max-attempts", "3")
    rules = ("--retry-on", "failed", "--retry-on", "timeout", "--timeout", "9", "--unresponsive", "2.5")
    assert shell.lines("enqueue", '{"a": 12345678901234567890}', *flags, *rules, "--metadata", '{"k": 1}') == ["mine"]
    rollout = await store.get_rollout_by_id("mine")
    assert rollout is not None
    assert rollout.input == {"a": 12345678901234567890}
    assert (rollout.mode, rollout.resources_id, rollout.metadata) == ("val", "rs", {"k": 1})
    assert rollout.config == RolloutConfig(
        max_attempts=3, retry_condition=["failed", "timeout"], timeout_seconds=9, unresponsive_seconds=2.5
    )
    assert shell.lines("enqueue", "2", "--rollout-id", "mine") == ["mine"]  # it is there: nothing changes
    assert (await store.query_rollouts()).total == 1


async def test_thousands_of_lines_keep_their_order(store: StreamStore, shell: Shell, tmp_path: Path) -> None:
    """Lines of a file go on the queue in order, empty ones are passed over, and the ids printed are theirs."""
    file = tmp_path / "inputs.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n\n' for n in range(1200)))
    printed = shell.lines("enqueue", "--file", str(file))
    queued = await store.query_rollouts()
    assert [one.rollout_id for one in queued] == printed
    assert [one.input["n"] for one in queued] == list(range(1200))


async def test_lines_of_a_pipe_can_be_given_again(store: StreamStore, shell: Shell) -> None:
    """With ids of the caller's the same lines enqueue nothing twice, so a broken run is repeated whole."""
    lines = "1\n2\nnot json\n4\n"
    broken = shell.run("enqueue", "--rollout-id", "b", input=lines)
    assert (broken.returncode, broken.stdout.split()) == (2, ["b-1", "b-2"])
    assert "enqueued before the error: 2" in broken.stderr
    assert "line 3 of standard input" in broken.stderr.splitlines()[-1]
    assert shell.lines("enqueue", "--rollout-id", "b", "--file", "-", input="1\n2\n3\n4\n") == [
        "b-1", "b-2", "b-3", "b-4",
    ]  # fmt: skip
    assert [one.input for one in await store.query_rollouts()] == [1, 2, 3, 4]


async def test_a_line_that_the_store_refuses_is_named(store: StreamStore, shell: Shell) -> None:
    """A line that is JSON but no input ends the command there: those before it are on the queue, those after not."""
    lines = "".join(["1\n" * 700, "[NaN]\n", "2\n" * 10])
    failed = shell.run("enqueue", input=lines)
    assert failed.returncode == 2
    assert "line 701 of standard input" in failed.stderr.splitlines()[-1]
    queued = await store.query_rollouts()
    assert [one.rollout_id for one in queued] == failed.stdout.split()
    assert [one.input for one in queued] == [1] * 700


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("1", "--mode", "fly"), "mode"),
        (("1", "--retry-on", "rain"), "retry_condition"),
        (("1", "--metadata", "[1]"), "metadata"),
        (("1", "--rollout-id", "a b"), "'a b'"),
        (("{",), "not JSON"),
        (("--file", "/does/not/exist"), "cannot be read"),
        (("1", "--file", "-"), "give one of them"),
        (("1", "--timeout", "-1"), "timeout_seconds"),
    ],
)
async def test_a_wrong_option_enqueues_nothing(
    store: StreamStore, shell: Shell, arguments: tuple[str, ...], told: str
) -> None:
    """It is named in one line, with exit code 2."""
    failed = shell.run("enqueue", *arguments)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert told in failed.stderr.splitlines()[-1]
    assert (await store.query_rollouts()).total == 0


async def test_rollouts_are_cancelled(store: StreamStore, shell: Shell) -> None:
    """Each is told with what it has become; one that had finished gives exit code 1, one that is unknown 2."""
    await rewarded(store, "done")
    for name in ("a", "b"):
        await store.enqueue_rollout(1, rollout_id=name)
    assert shell.lines("cancel", "a", "--reason", "old") == ["a cancelled"]
    assert shell.run("cancel", "a", "done", "--reason", "old").returncode == 1
    mixed = shell.run("cancel", "nobody", "b", "--reason", "old")
    assert (mixed.returncode, mixed.stdout) == (2, "b cancelled\n")
    assert "nobody" in mixed.stderr
    rollout = await store.get_rollout_by_id("b")
    assert rollout is not None
    assert rollout.metadata == {"agl_streams.reason": "old"}


def begun(command: list[str]) -> subprocess.Popen[bytes]:
    """A command whose output is read as it comes."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def test_a_reader_that_goes_away_ends_the_command(settings: Settings, store: StreamStore) -> None:
    """A closed pipe is no error to be told: the command ends as a shell's own do, without a traceback."""
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x" * 900) for _ in range(400)])
    flags = ["--redis-url", settings.redis_url or "", "--namespace", settings.namespace]
    listing = [*COMMAND_LINE, "ls", "--json", "--limit", "-1", *flags]
    with begun(listing) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (EXIT_PIPE, b"")


async def test_the_same_commands_ask_a_server(settings: Settings, store: StreamStore) -> None:
    """With --server they work over HTTP and print the same."""
    async with serving(settings) as url:

        def ask(*arguments: str) -> str:
            done = run(*arguments, "--server", url)
            assert (done.returncode, done.stderr) == (0, ""), done
            return done.stdout

        assert await asyncio.to_thread(ask, "enqueue", "[1]", "--rollout-id", "r") == "r\n"
        assert await asyncio.to_thread(ask, "cancel", "r", "--reason", "x") == "r cancelled\n"
        for command in (["ls", "--json"], ["show", "r", "--json"], ["dead", "ls", "--json"]):
            assert await asyncio.to_thread(ask, *command) == "\n".join(
                [*Shell(settings).lines(*command), ""] if command[0] != "dead" else [""]
            )
