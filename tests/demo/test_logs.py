"""What is read from the log files of the demo's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl_streams.demo.logs import COMPLAINT_LINES, TAIL_LINES, Logs

MIXED = """{"event": "begun", "level": "info", "port": 1}
Traceback of some library
["no", "event"]
{"event": "odd", "level": "warning"}
{"event": "half wri"""


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    """A log with lines of all kinds, and one without any."""
    (tmp_path / "proxy.log").write_text(MIXED)
    (tmp_path / "policy.log").write_text("")
    return Logs(tmp_path)


def test_events_are_found_among_other_lines(logs: Logs) -> None:
    """Only whole JSON objects are events; a file that is not there yet has none."""
    assert [record["event"] for record in logs.records("proxy")] == ["begun", "odd"]
    assert logs.records("runner-1") == []


def test_the_tail_has_the_last_lines_as_they_are(logs: Logs) -> None:
    """A tail is headed by the name, and says so when there is nothing."""
    assert logs.tail("proxy") == f"the log of proxy ends:\n{MIXED}"
    assert logs.tail("policy") == "the log of policy is empty"
    logs.path("proxy").write_text("\n".join(map(str, range(100))))
    assert logs.tail("proxy").splitlines()[1:] == [str(number) for number in range(100 - TAIL_LINES, 100)]


def test_complaints_are_the_newest_warnings_and_errors(logs: Logs) -> None:
    """Of each log only some complaints are told, and of one without complaints nothing."""
    assert logs.complaints("proxy") == 'proxy complained:\n{"event":"odd","level":"warning"}'
    assert logs.complaints("policy") == ""
    logs.path("policy").write_text("".join(f'{{"event":"e{number}","level":"error"}}\n' for number in range(9)))
    assert len(logs.complaints("policy").splitlines()) == 1 + COMPLAINT_LINES
    assert '"e8"' in logs.complaints("policy")
