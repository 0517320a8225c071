"""`doctor`: what is wrong with the server or the namespace, and what to do about it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from agl_streams.cli.app import app
from agl_streams.cli.options import EXIT_MISSED, DataDir, JsonOutput, Namespace, RedisUrl, server_of, settings_of
from agl_streams.cli.terminal import finish, styled, write, write_json

if TYPE_CHECKING:
    from agl_streams.doctor import Finding

INDENT: Final = " " * 10


@app.command()
def doctor(
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    data_dir: DataDir = None,
    json_output: JsonOutput = False,
) -> None:
    """Look at the server and the namespace, and say what is wrong and what to do. Changes nothing.

    Exit code 1: there is a problem. With --json, a list of findings.
    """
    from agl_streams.doctor import examine  # a client takes half of the time that a command takes to start

    with server_of(settings_of(redis_url, namespace, data_dir, quiet=True)) as settings:

        def work() -> int:
            findings = asyncio.run(examine(settings))
            if json_output:
                write_json([asdict(one) for one in findings])
            else:
                _show(findings)
            return EXIT_MISSED if any(one.level == "problem" for one in findings) else 0

        finish(work)


def _show(findings: list[Finding]) -> None:
    width = max(len(one.check) for one in findings)
    for one in findings:
        where = f" ({one.where})" if one.where else ""
        styled((one.level, len(INDENT)), (one.check, width + 2), (one.found + where, 0))
        for name, text in (("means", one.means), ("do", one.todo)):
            if text:
                write(f"{INDENT}{name + ':':{width + 2}}{text}")
