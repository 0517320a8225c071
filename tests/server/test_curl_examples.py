"""The examples with curl in README and docs, run by a shell exactly as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from agl_streams.store import StreamStore
from tests.support.processes import ROOT
from tests.support.servers import missing

SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
TIME_IS_UP = 28
"""curl's exit status after ``--max-time``, with which each example ends."""


def example(page: str) -> str:
    """The one block of a page that calls curl."""
    (found,) = [block for block in SHELL.findall((ROOT / page).read_text()) if "curl " in block]
    return found


async def answers(server_url: str, script: str, folder: Path) -> list[str]:
    """What the lines of a script print. Its port, the default one, is led to the server by curl's own settings."""
    if shutil.which("curl") is None:
        missing("curl is not installed")
    host, port = server_url.removeprefix("http://").split(":")
    (folder / ".curlrc").write_text(f'connect-to = "127.0.0.1:4747:{host}:{port}"\nwrite-out = "\\n"\n')
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", script, stdout=asyncio.subprocess.PIPE, env={**os.environ, "CURL_HOME": str(folder)}
    )
    printed, _ = await process.communicate()
    assert process.returncode == TIME_IS_UP, printed
    return printed.decode().splitlines()


def told(lines: list[str]) -> list[dict[str, Any]]:
    """The server-sent events among lines."""
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def test_a_rollout_goes_its_way_as_the_readme_shows(server_url: str, store: StreamStore, tmp_path: Path) -> None:
    """The README's lines enqueue a rollout, take it, store a span, finish it, wait for it and show its events."""
    lines = await answers(server_url, example("README.md"), tmp_path)
    queued, span, attempt, waited = (json.loads(line) for line in lines[:4])
    assert (queued[0]["rollout_id"], queued[0]["status"]) == ("sum", "queuing")
    assert (span["attempt_id"], span["sequence_id"], span["attributes"]) == (attempt["attempt_id"], 1, {"text": "4"})
    assert (attempt["status"], attempt["worker_id"]) == ("succeeded", "me")
    assert [one["status"] for one in waited] == ["succeeded"]
    types = [event["type"] for event in told(lines)]
    assert types == ["rollout_enqueued", "attempt_started", "attempt_running", "spans", "attempt_ended"]
    (stored,) = await store.query_spans("sum")
    assert (stored.name, stored.trace_id, stored.span_id) == ("answer", "a1", "b2")


async def test_the_examples_of_the_protocol_answer(server_url: str, store: StreamStore, tmp_path: Path) -> None:
    """The lines of docs/protocol.md enqueue, take, count and read the log."""
    lines = await answers(server_url, example("docs/protocol.md"), tmp_path)
    (queued,), (taken,), counted = (json.loads(line) for line in lines[:3])
    assert taken["rollout_id"] == queued["rollout_id"]
    assert (taken["attempt"]["worker_id"], counted["total_rollouts"]) == ("me", 1)
    assert {event["fields"]["rollout"] for event in told(lines)} == {queued["rollout_id"]}
