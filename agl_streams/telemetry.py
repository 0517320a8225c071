"""Logs: structlog events on standard error, as coloured lines or as JSON, with the ids of the current trace.

Standard output belongs to what a command prints, so that ``--json`` stays parseable. Records of other libraries
(uvicorn, aiohttp) take the same way. OpenTelemetry is read only if the program has loaded it already: importing its
SDK costs a quarter of the time that importing this package may take.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import orjson
import structlog

from agl_streams.config import Settings, misspelt_variables
from agl_streams.logger import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from structlog.typing import EventDict, Processor, WrappedLogger


def configure_logging(settings: Settings) -> None:
    """Set up logging for this process. Call it once in each process that runs a part, before the first event.

    Args:
        settings: ``log_level`` and ``log_format`` are used.
    """
    level = logging.getLevelNamesMapping()[settings.log_level]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_trace_ids,
    ]
    rendering = _json_rendering() if settings.log_format == "json" else _console_rendering()
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        # A cached logger would keep the stream of an earlier set-up.
        cache_logger_on_first_use=False,
    )
    _route_standard_logging(level, shared, rendering)
    for name, meant in misspelt_variables().items():
        get_logger().warning("unknown_setting", variable=name, did_you_mean=meant)


def add_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor: note the active OpenTelemetry span as ``trace_id`` and ``span_id`` (lower-case hex)."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return event
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", f"{context.trace_id:032x}")
        event.setdefault("span_id", f"{context.span_id:016x}")
    return event


def _json_rendering() -> list[Processor]:
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # locals hold inputs and passwords
    return [structlog.processors.ExceptionRenderer(tracebacks), structlog.processors.JSONRenderer(serializer=_dumps)]


def _console_rendering() -> list[Processor]:
    # The default formatter would show local variables, which hold inputs and passwords.
    formatter = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=formatter)]


def _dumps(event: EventDict, default: Callable[[Any], Any], **_options: Any) -> str:
    return orjson.dumps(event, default=default, option=orjson.OPT_NON_STR_KEYS).decode()


def _route_standard_logging(level: int, shared: list[Processor], rendering: list[Processor]) -> None:
    """Let records of the standard library's ``logging`` be rendered as our events are."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Libraries tell of each connection at INFO; ours are the events that a person asked for.
    root.setLevel(max(level, logging.WARNING))
