"""The models of the wire other than spans: defaults, order of keys, checks, and what the sentinels promise."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from agl_streams.errors import InvalidRequest
from agl_streams.models import (
    LLM,
    UNSET,
    Attempt,
    AttemptedRollout,
    EnqueueRolloutRequest,
    NamedResources,
    PaginatedResult,
    PromptTemplate,
    ProxyLLM,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    Worker,
)
from agl_streams.shapes import Wire

ROLLOUT_JSON = (
    '{"rollout_id":"ro-0a1b2c3d4e5f","input":{"q":1},"start_time":1700000000.25,"end_time":null,"mode":null,'
    '"resources_id":null,"status":"queuing","config":{"timeout_seconds":null,"unresponsive_seconds":null,'
    '"max_attempts":1,"retry_condition":[]},"metadata":{}}'
)


def test_a_rollout_is_written_as_the_contract_shows_it() -> None:
    """Keys come in model order, nulls are present, and reading it back gives an equal rollout."""
    rollout = Rollout(rollout_id="ro-0a1b2c3d4e5f", input={"q": 1}, start_time=1700000000.25, metadata={})
    assert rollout.to_json().decode() == ROLLOUT_JSON
    assert Rollout.from_json(ROLLOUT_JSON) == rollout


def test_a_whole_number_of_seconds_stays_a_float() -> None:
    """An int for a float field comes back with a decimal point."""
    rollout = Rollout.model_validate({"rollout_id": "ro-1", "input": None, "start_time": 3})
    assert b'"start_time":3.0' in rollout.to_json()


def test_an_attempted_rollout_ends_with_its_attempt() -> None:
    """The attempt comes after the rollout's own fields."""
    attempt = Attempt(rollout_id="ro-1", attempt_id="at-1", sequence_id=1, start_time=1)
    rollout = AttemptedRollout(rollout_id="ro-1", input=1, start_time=1, attempt=attempt)
    assert list(rollout.model_dump())[-1] == "attempt"


def test_an_attempt_of_another_rollout_is_refused() -> None:
    """A rollout and its attempt must name the same rollout."""
    attempt = Attempt(rollout_id="ro-2", attempt_id="at-1", sequence_id=1, start_time=1)
    with pytest.raises(ValidationError, match="Inconsistent rollout_id between Rollout and Attempt"):
        AttemptedRollout(rollout_id="ro-1", input=1, start_time=1, attempt=attempt)


def test_models_cannot_be_changed() -> None:
    """A field cannot be set after the model was made."""
    worker = Worker(worker_id="w")
    with pytest.raises(ValidationError, match="frozen"):
        worker.status = "busy"


def test_unknown_keys_are_ignored() -> None:
    """A newer peer may send more than is known here."""
    assert "more" not in Worker.from_json('{"worker_id":"w","more":1}').model_dump()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"retry_condition": ["cancelled"]}, "retry_condition.0"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"unresponsive_seconds": float("inf")}, "unresponsive_seconds"),
        ({"timeout_seconds": "soon"}, "timeout_seconds"),
    ],
)
def test_a_bad_configuration_is_named(fields: dict[str, Any], place: str) -> None:
    """The error says which field of the configuration does not fit."""
    with pytest.raises(InvalidRequest, match=f"config: {place}: "):
        RolloutConfig.checked(fields, "config")


def test_an_error_counts_what_it_does_not_show() -> None:
    """Of several faults the first is told, the others are counted."""
    with pytest.raises(InvalidRequest, match=r"\(and 2 more\)"):
        Rollout.checked({}, "rollout")


def test_a_request_is_the_keyword_arguments_of_an_enqueue() -> None:
    """The reference's fields come first, ours after them."""
    dump = EnqueueRolloutRequest(input=1).model_dump()
    assert list(dump) == ["input", "mode", "resources_id", "config", "metadata", "rollout_id"]


def test_unset_stays_one_object() -> None:
    """Copying and pickling give back the same object, so that ``is UNSET`` holds everywhere."""
    twins = [copy.copy(UNSET), copy.deepcopy(UNSET), pickle.loads(pickle.dumps(UNSET))]
    assert all(twin is UNSET for twin in twins)
    assert repr(UNSET) == "UNSET"


def test_a_page_is_a_sequence_of_its_items() -> None:
    """A page can be measured, indexed, sliced, searched and walked like a list."""
    page = PaginatedResult[int](items=[3, 4, 5], limit=3, offset=6, total=20)
    assert isinstance(page, Sequence)
    assert (len(page), page[0], page[-1], page[1:], list(page)) == (3, 3, 5, [4, 5], [3, 4, 5])
    assert 4 in page
    assert page.index(5) == 2
    assert list(reversed(page)) == [5, 4, 3]


def test_a_page_is_written_as_an_envelope() -> None:
    """The four keys of the envelope come in fixed order, whatever is in it."""
    page = PaginatedResult[Worker](items=[], limit=-1, offset=0, total=0)
    assert page.to_json() == b'{"items":[],"limit":-1,"offset":0,"total":0}'
    assert not page


def test_a_page_shows_its_range_and_first_item() -> None:
    """A page of thousands makes no flood in a log."""
    page = PaginatedResult[int](items=[3, 4, 5], limit=3, offset=6, total=20)
    assert str(page) == repr(page) == "<PaginatedResult[int] 6:9 of 20: 3, …>"
    assert repr(PaginatedResult[int](items=[], limit=-1, offset=0, total=0)) == "<PaginatedResult[int] 0:0 of 0: empty>"


def test_a_page_reads_its_items_as_their_model() -> None:
    """A page of a model validates what is in it."""
    page = PaginatedResult[Worker].from_json('{"items":[{"worker_id":"w"}],"limit":1,"offset":0,"total":1}')
    assert page[0] == Worker(worker_id="w")


def test_resources_are_told_apart_by_their_tag() -> None:
    """Each resource is read as the model of its type, and written with its tag first."""
    resources: NamedResources = {
        "a": LLM(endpoint="http://a/v1", model="m"),
        "b": ProxyLLM(endpoint="http://b/v1", model="m"),
        "c": PromptTemplate(template="{x}", engine="f-string"),
    }
    update = ResourcesUpdate(resources_id="rs-1", create_time=1, update_time=1, version=1, resources=resources)
    assert ResourcesUpdate.from_json(update.to_json()) == update
    assert list(resources["a"].model_dump()) == [
        "resource_type", "endpoint", "model", "api_key", "sampling_parameters",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ({"endpoint": "e", "model": "m"}, "union_tag_not_found"),
        ({"resource_type": "nope", "endpoint": "e", "model": "m"}, "union_tag_invalid"),
    ],
)
def test_a_resource_needs_a_known_tag(resource: dict[str, str], kind: str) -> None:
    """On the wire the tag is required and must be known."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter[Any](NamedResources).validate_python({"main": resource})
    assert caught.value.errors()[0]["type"] == kind


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://h:1", "http://h:1/rollout/ro-1/attempt/at-1"),
        ("http://h:1/", "http://h:1/rollout/ro-1/attempt/at-1"),
        ("http://h:1/v1", "http://h:1/rollout/ro-1/attempt/at-1/v1"),
        ("http://h:1/v1/", "http://h:1/rollout/ro-1/attempt/at-1/v1"),
        ("http://h:1/a/v1", "http://h:1/a/rollout/ro-1/attempt/at-1/v1"),
    ],
)
def test_the_base_url_of_a_proxied_model_names_the_attempt(endpoint: str, url: str) -> None:
    """Rollout and attempt go before a final /v1, a trailing slash goes away."""
    llm = ProxyLLM(endpoint=endpoint, model="m")
    assert llm.get_base_url("ro-1", "at-1") == url
    assert llm.get_base_url() == endpoint


def test_a_base_url_needs_both_ids_or_none() -> None:
    """One id without the other is refused."""
    with pytest.raises(InvalidRequest, match=r"rollout 'ro-1', attempt None"):
        ProxyLLM(endpoint="e", model="m").get_base_url("ro-1")


def test_an_unproxied_model_has_one_base_url() -> None:
    """A plain model does not care who asks."""
    assert LLM(endpoint="http://h/v1", model="m").get_base_url("ro-1", "at-1") == "http://h/v1"


def test_a_template_is_filled_in() -> None:
    """An f-string template takes its values by name."""
    assert PromptTemplate(template="Hi {name}", engine="f-string").format(name="you") == "Hi you"


@pytest.mark.parametrize(("template", "engine"), [("{{ x }}", "jinja"), ("{y}", "f-string"), ("{0}", "f-string")])
def test_a_template_that_cannot_be_filled_in_is_refused(template: str, engine: Any) -> None:
    """Another engine, and a place without a value, are errors of ours."""
    with pytest.raises(InvalidRequest, match="cannot be filled in"):
        PromptTemplate(template=template, engine=engine).format(x=1)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"worker_id":1}', b"\xff"])
def test_what_is_no_such_model_is_refused(data: bytes) -> None:
    """Broken JSON, another shape and a wrong type are the same kind of error."""
    with pytest.raises(InvalidRequest):
        Worker.from_json(data)


@pytest.mark.parametrize("bad", [{"x": "\ud800"}, {"x": {"y": ["\udfff"]}}])
def test_a_model_with_broken_text_is_not_written(bad: dict[str, Any]) -> None:
    """A lone surrogate in a free value is refused with its place."""
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        Worker(worker_id="w", heartbeat_stats=bad).to_json()


def test_a_model_with_a_foreign_object_is_not_written() -> None:
    """A free value that is not JSON is refused."""
    with pytest.raises(InvalidRequest, match="cannot be written as JSON"):
        Worker(worker_id="w", heartbeat_stats={"x": object()}).to_json()


def test_what_would_not_read_back_is_not_written() -> None:
    """A value too deep, or a number too long, for the reader is refused by the writer."""
    deep: Any = 1
    for _ in range(210):
        deep = [deep]
    for value in (deep, 10**5000):
        with pytest.raises(InvalidRequest, match="not JSON"):
            Worker(worker_id="w", heartbeat_stats={"x": value}).to_json()


def test_every_model_of_the_wire_is_frozen() -> None:
    """No model opts out of being frozen."""
    kinds = [Wire]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 15
    assert all(kind.model_config.get("frozen") for kind in kinds)
