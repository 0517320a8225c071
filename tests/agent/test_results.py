"""What an agent returns or raises, as spans."""

from __future__ import annotations

import math
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from agl_streams import semconv
from agl_streams.agent import AttemptContext, exception_span, spans_for_result
from agl_streams.errors import AgentError
from agl_streams.models import Span
from tests.support.spans import ATTEMPT, ROLLOUT


@pytest.mark.parametrize("result", [None, [], ()])
async def test_nothing_stands_for_no_spans(context: AttemptContext, result: object) -> None:
    """An agent may leave it at what it has emitted."""
    assert spans_for_result(result, context) == []


@pytest.mark.parametrize(("result", "reward"), [(0.5, 0.5), (0, 0.0), (3, 3.0), (True, 1.0), (False, 0.0)])
async def test_a_number_is_the_final_reward(context: AttemptContext, result: float, reward: float) -> None:
    """Booleans and integers count as numbers."""
    (span,) = spans_for_result(result, context)
    assert repr(semconv.reward_value(span)) == repr(reward)
    assert (span.rollout_id, span.attempt_id, span.name) == (ROLLOUT, ATTEMPT, "agentlightning.annotation")


async def test_a_numpy_number_is_a_number(context: AttemptContext) -> None:
    """A mean or a comparison from NumPy needs no conversion."""
    numpy = pytest.importorskip("numpy")
    for value in (numpy.float64(0.5), numpy.float32(0.5)):
        (span,) = spans_for_result(value, context)
        assert semconv.reward_value(span) == 0.5


async def test_spans_of_ours_become_the_attempts(context: AttemptContext) -> None:
    """A span without ids gets them, and keeps everything else."""
    made = Span.from_attributes(name="step", attributes={"a": 1}, sequence_id=4)
    (span,) = spans_for_result([made], context)
    assert span == made.model_copy(update={"rollout_id": ROLLOUT, "attempt_id": ATTEMPT})
    assert spans_for_result([span], context) == [span]


async def test_spans_of_opentelemetry_are_converted(context: AttemptContext) -> None:
    """They become spans of the attempt, in order, with their number open."""
    spans = spans_for_result([ReadableSpan("one"), ReadableSpan("two")], context)
    assert [(span.name, span.rollout_id, span.attempt_id, span.sequence_id) for span in spans] == [
        ("one", ROLLOUT, ATTEMPT, 0),
        ("two", ROLLOUT, ATTEMPT, 0),
    ]


@pytest.mark.parametrize("ids", [{"rollout_id": "ro-x"}, {"attempt_id": "at-x"}])
async def test_a_span_of_another_attempt_is_refused(context: AttemptContext, ids: dict[str, str]) -> None:
    """An agent reports on its own attempt."""
    foreign = Span.from_attributes(name="step", attributes={}).model_copy(update=ids)
    with pytest.raises(AgentError, match=f"the agent of attempt '{ATTEMPT}' returned span 'step' of"):
        spans_for_result([foreign], context)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("1.0", r"returned '1.0' of type str; return a finite number \(the final reward\), a list of spans, or None"),
        ({"reward": 1}, r"returned \{'reward': 1\} of type dict"),
        (math.nan, "returned nan of type float"),
        (1j, "of type complex"),
        ([1.0, 2.0], "returned a list of float; a list must hold spans of one kind"),
        ([Span.from_attributes(attributes={}), 1], "returned a list of agl_streams.span.Span, int; a list"),
        (
            [Span.from_attributes(attributes={}), ReadableSpan("x")],
            "of agl_streams.span.Span, opentelemetry.*ReadableSpan",
        ),
        ([None], "returned a list of NoneType"),
    ],
)
async def test_other_results_are_refused_by_type(context: AttemptContext, result: Any, message: str) -> None:
    """The error names what came and what would do."""
    with pytest.raises(AgentError, match=message):
        spans_for_result(result, context)


async def test_a_bad_list_names_ten_types_at_most(context: AttemptContext) -> None:
    """A long list of odd things makes no long error."""
    odd = [type(f"T{number:02}", (), {})() for number in range(30)]
    with pytest.raises(AgentError, match="a list of ") as caught:
        spans_for_result(odd, context)
    assert ("T09" in str(caught.value), "T10" in str(caught.value)) == (True, False)


def raised(error: Exception) -> Exception:
    """The exception with a stack trace, as an agent raises it."""
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 — whatever the test made
        return caught


async def test_an_exception_has_opentelemetrys_attributes(context: AttemptContext) -> None:
    """Type, message and stack trace are there, and the span has failed."""
    span = exception_span(raised(ValueError("bad")), context)
    assert (span.name, span.rollout_id, span.attempt_id) == ("agentlightning.exception", ROLLOUT, ATTEMPT)
    assert (span.status.status_code, span.status.description) == ("ERROR", "ValueError: bad")
    assert span.attributes["exception.type"] == "ValueError"
    assert span.attributes["exception.message"] == "bad"
    assert span.attributes["exception.escaped"] is True
    stack = span.attributes["exception.stacktrace"]
    assert isinstance(stack, str)
    assert stack.startswith("Traceback")
    assert stack.endswith("ValueError: bad\n")


async def test_the_type_of_an_exception_is_qualified(context: AttemptContext) -> None:
    """Two errors of one name can be told apart."""
    assert exception_span(AgentError("x"), context).attributes["exception.type"] == "agl_streams.errors.AgentError"


async def test_a_huge_exception_is_cut(context: AttemptContext) -> None:
    """The start of the message and the end of the stack trace are kept; the span stays small."""
    span = exception_span(raised(ValueError("x" * 10**6 + "end")), context)
    assert len(span.to_json()) < 300_000
    assert str(span.attributes["exception.stacktrace"]).endswith("xend\n")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [ValueError("lone \ud800 surrogate"), Unprintable(), ExceptionGroup("g", [OSError()])]
)
async def test_every_exception_can_be_written(context: AttemptContext, error: Exception) -> None:
    """Broken text and a broken message do not hide that the agent failed."""
    span = exception_span(raised(error), context)
    assert Span.from_json(span.to_json()) == span
