"""Spans: coercion of attributes, extras, NaN, round trips, and spans made from plain attributes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agl_streams.errors import InvalidRequest
from agl_streams.models import AttributeValue, Event, Link, OtelResource, Span, SpanContext, TraceStatus

ATTRIBUTE: TypeAdapter[AttributeValue] = TypeAdapter(AttributeValue)

CONTRACT_SPAN = (
    '{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":7,"trace_id":"0af7","span_id":"b7ad","parent_id":null,'
    '"name":"step","status":{"status_code":"OK","description":null},"attributes":{"n":[1.5,2.0]},'
    '"events":[{"name":"e","attributes":{},"timestamp":2.0}],"links":[{"context":{"trace_id":"a","span_id":"b",'
    '"is_remote":false,"trace_state":{}},"attributes":null}],"start_time":1.5,"end_time":null,"context":null,'
    '"parent":null,"resource":{"attributes":{},"schema_url":""}}'
)


def test_the_span_of_the_contract_comes_back_byte_for_byte() -> None:
    """Reading and writing keep the order of keys, the nulls and the numbers."""
    assert Span.from_json(CONTRACT_SPAN).to_json().decode() == CONTRACT_SPAN


@pytest.mark.parametrize("key", sorted(Span.model_fields))
def test_every_key_of_a_span_is_required(key: str) -> None:
    """A span without one of its declared keys is refused, even where null would do."""
    fields = Span.from_json(CONTRACT_SPAN).model_dump()
    del fields[key]
    with pytest.raises(InvalidRequest, match=f"span: {key}: Field required"):
        Span.checked(fields, "span")


def test_extras_are_kept_on_a_span_and_its_parts() -> None:
    """Unknown keys survive on the span, its status, contexts, events and links, and are dropped on the resource."""
    fields = Span.from_json(CONTRACT_SPAN).model_dump()
    context: dict[str, Any] = {"trace_id": "a", "span_id": "b", "is_remote": True, "trace_state": {}, "x": 1}
    fields |= {"x": {"deep": [1]}, "context": context, "links": [{"context": context, "attributes": None, "x": 2}]}
    fields["status"]["x"] = "s"
    fields["events"][0]["x"] = None
    fields["resource"]["x"] = "gone"
    read = Span.from_json(Span.checked(fields, "span").to_json()).model_dump()
    del fields["resource"]["x"]
    assert read == fields
    assert list(read)[-1] == "x"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (1, 1),
        (1.0, 1.0),
        (True, True),
        ("1", "1"),
        ([], []),
        (["a", "1"], ["a", "1"]),
        ([True, False], [True, False]),
        ([1, 0], [1, 0]),
        ([1.0, 0.0], [1.0, 0.0]),
        ([1, 2.5], [1.0, 2.5]),
        ([1, True], [True, True]),
        ([True, 2], [1, 2]),
        (["1", 2], [1, 2]),
        ((1, 0), [1, 0]),
        ((1.0, 0.0), [1.0, 0.0]),
        (("a", "b"), ["a", "b"]),
        ((), []),
        (10**30, 10**30),
    ],
)
def test_attribute_values_are_coerced_as_the_contract_says(value: object, kept: object) -> None:
    """Scalars keep their type; lists become lists of one type; tuples are lists."""
    read = ATTRIBUTE.validate_python(value)
    assert repr(read) == repr(kept)  # repr tells 1, 1.0 and True apart


@pytest.mark.parametrize("value", [None, {}, {"a": 1}, [None], [[1]], ["a", 1], [{}], object()])
def test_other_attribute_values_are_refused_by_name(value: object) -> None:
    """Nulls, objects, nested and truly mixed lists do not fit, and the error names the attribute."""
    with pytest.raises(InvalidRequest, match=r"span 'step': attributes\.bad"):
        Span.from_attributes(name="step", attributes={"good": 1, "bad": value})


def test_nan_and_infinity_survive_in_attributes() -> None:
    """Span attributes keep what a computation gave, in scalars and lists."""
    span = Span.from_attributes(attributes={"nan": math.nan, "list": [math.inf, -math.inf, 1.0]})
    read = Span.from_json(span.to_json()).attributes
    assert repr(read["nan"]) == "nan"
    assert read["list"] == [math.inf, -math.inf, 1.0]


@pytest.mark.parametrize("time", [math.nan, math.inf])
def test_a_time_must_be_finite(time: float) -> None:
    """Spans are ordered by time, so NaN and infinity are no times."""
    with pytest.raises(InvalidRequest, match="span 'x': start_time"):
        Span.from_attributes(name="x", attributes={}, start_time=time)


def test_a_span_from_attributes_fills_in_what_is_missing() -> None:
    """Ids are random, the status is OK, the context is made from the ids."""
    span = Span.from_attributes(attributes={"a": 1})
    assert (span.name, span.rollout_id, span.attempt_id, span.sequence_id) == ("agentlightning.virtual", "", "", 0)
    assert (len(span.trace_id), len(span.span_id)) == (32, 16)
    assert span.status == TraceStatus(status_code="OK")
    assert span.context == SpanContext(trace_id=span.trace_id, span_id=span.span_id, is_remote=False, trace_state={})
    assert span.parent is None
    assert Span.from_attributes(attributes={}).span_id != span.span_id


def test_a_parent_id_makes_a_parent_context() -> None:
    """The parent is in the same trace."""
    span = Span.from_attributes(attributes={}, trace_id="t", parent_id="p")
    assert span.parent == SpanContext(trace_id="t", span_id="p", is_remote=False, trace_state={})


def test_broken_text_in_an_attribute_is_named_when_the_span_is_written() -> None:
    """A lone surrogate is refused with the place where it stands."""
    span = Span.from_attributes(attributes={"a": ["ok", "bad \ud800"]})
    with pytest.raises(InvalidRequest, match=r"Span\['attributes'\]\['a'\]\[1\] has a lone surrogate at character 4"):
        span.to_json()


def test_a_giant_integer_is_refused_when_the_span_is_written() -> None:
    """A span that could not be read back would block every query of its rollout."""
    with pytest.raises(InvalidRequest, match="not JSON"):
        Span.from_attributes(attributes={"a": 10**5000}).to_json()


text = st.text(st.characters(exclude_categories=["Cs"]))
number = st.floats(allow_nan=False)
values = st.one_of(
    text,
    st.booleans(),
    st.integers(),
    number,
    st.lists(text),
    st.lists(st.booleans()),
    st.lists(st.integers()),
    st.lists(number),
)
attributes = st.dictionaries(text, values)
times = st.none() | st.floats(0, 4e9)
contexts = st.builds(
    SpanContext, trace_id=text, span_id=text, is_remote=st.booleans(), trace_state=st.dictionaries(text, text)
)
spans = st.builds(
    Span.from_attributes,
    name=text,
    attributes=attributes,
    rollout_id=text,
    sequence_id=st.integers(0, 2**53),
    parent_id=st.none() | text,
    start_time=times,
    end_time=times,
    events=st.lists(st.builds(Event, name=text, attributes=attributes, timestamp=times), max_size=2),
    links=st.lists(st.builds(Link, context=contexts, attributes=st.none() | attributes), max_size=2),
    resource=st.builds(OtelResource, attributes=attributes, schema_url=text),
)


@given(spans)
def test_a_span_reads_back_equal(span: Span) -> None:
    """Whatever a span holds, both ways of reading give it back with every type, and writing it again the same bytes."""
    data = span.to_json()
    read = Span.from_json(data)
    assert read == span == Span.model_validate_json(data)
    assert read.to_json() == data


@given(values)
def test_every_way_of_reading_agrees_on_types(value: Any) -> None:
    """An attribute of one type keeps it from Python and from JSON alike: a true never becomes a 1."""
    resource = OtelResource(attributes={"a": value}, schema_url="")
    data = resource.to_json()
    for read in (resource, OtelResource.from_json(data), OtelResource.model_validate_json(data)):
        assert repr(read.attributes["a"]) == repr(value)
