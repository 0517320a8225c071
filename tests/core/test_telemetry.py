"""Logs go to standard error, as lines or as JSON, without what must not be in them."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from agl_streams.config import load_settings
from agl_streams.logger import get_logger
from agl_streams.telemetry import add_trace_ids, configure_logging


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Logging is as before once the test is over: the set-up is of the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_events_are_json_objects_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """With the format json each event is one JSON object a line, and standard output stays empty."""
    configure_logging(load_settings(log_format="json"))
    structlog.get_logger().info("attempt_ended", rollout_id="ro-1", numbers={1: 2})
    printed = capsys.readouterr()
    event = orjson.loads(printed.err)
    assert printed.out == ""
    assert (event["event"], event["rollout_id"], event["level"]) == ("attempt_ended", "ro-1", "info")
    assert event["numbers"] == {"1": 2}


def test_events_are_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """With the format console an event is a line with its fields."""
    configure_logging(load_settings(log_format="console"))
    structlog.get_logger().info("attempt_ended", rollout_id="ro-1")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "attempt_ended" in printed.err
    assert "rollout_id=ro-1" in printed.err


def test_the_level_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """An event below the level is not written."""
    configure_logging(load_settings(log_level="WARNING"))
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    printed = capsys.readouterr().err
    assert "loud" in printed
    assert "quiet" not in printed


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_traceback_shows_no_local_variables(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    """An exception is logged with its traceback, but the values of variables, which may be secret, are not."""
    configure_logging(load_settings(log_format=log_format))
    password = "-".join(["do", "not", "show"])
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        structlog.get_logger().exception("failed", length=len(password))
    printed = capsys.readouterr().err
    assert "RuntimeError" in printed
    assert "broken" in printed
    assert password not in printed


def test_records_of_other_libraries_take_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning from the standard library's logging is rendered as an event, its chatter is dropped."""
    configure_logging(load_settings(log_format="json"))
    logging.getLogger("aiohttp.access").info("GET /")
    logging.getLogger("uvicorn").warning("port %s is busy", 4750)
    event = orjson.loads(capsys.readouterr().err)
    assert (event["event"], event["logger"], event["level"]) == ("port 4750 is busy", "uvicorn", "warning")


def test_a_misspelt_variable_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Setting up logs tells of a variable that is probably misspelt."""
    monkeypatch.setenv("AGL_LEASE_SECOND", "3")
    configure_logging(load_settings(log_format="json"))
    event = orjson.loads(capsys.readouterr().err)
    assert (event["event"], event["did_you_mean"]) == ("unknown_setting", "AGL_LEASE_SECONDS")


SCRIPT = """
import sys
from pathlib import Path
from agl_streams.engine import Engine
with Engine.start(Path(sys.argv[1])):
    print("answer")
"""


def test_a_program_that_set_nothing_up_keeps_its_standard_output(tmp_path: Path) -> None:
    """Our events go to standard error unasked, so that what a script prints is its own."""
    run = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout == "answer\n"
    assert "engine_started" in done.stderr


def test_the_set_up_of_a_program_holds_for_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a program has sent its structlog events, ours go, even of a logger that was made before."""
    log = get_logger()
    log.info("before")
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()], logger_factory=structlog.PrintLoggerFactory(sys.stdout)
    )
    log.info("after", n=1)
    printed = capsys.readouterr()
    assert printed.out == "n=1 event='after'\n"
    assert "before" in printed.err
    assert "after" not in printed.err


def test_an_event_inside_a_span_carries_its_ids() -> None:
    """Within an OpenTelemetry span an event gets the span's ids in hex, outside it gets none."""
    assert add_trace_ids(None, "info", {"event": "x"}) == {"event": "x"}
    with TracerProvider().get_tracer("test").start_as_current_span("work") as span:
        event = add_trace_ids(None, "info", {"event": "x"})
    assert event["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert event["span_id"] == f"{span.get_span_context().span_id:016x}"
