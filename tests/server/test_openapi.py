"""The OpenAPI document as others use it: valid by OpenAPI's own rules, and what Schemathesis makes requests from."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any, cast

import pytest
import requests
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from openapi_spec_validator import OpenAPIV31SpecValidator

from agl_streams.config import Settings
from tests.server.served import serve
from tests.server.support import Api
from tests.support.processes import ProcessGroup

# Schemathesis leaves the types of its generics open, which strict checking does not take.
schemathesis: Any = import_module("schemathesis")
checks: Any = import_module("schemathesis.checks")
openapi_checks: Any = import_module("schemathesis.specs.openapi.checks")

ENDLESS = "/v1/agl/events"
NOT_KEPT = {"/v1/metrics", "/v1/logs", "/v1/development/profiles"}
"""Answered 501, as the document says."""
EXAMPLES = hypothesis_settings(
    max_examples=6, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


async def test_the_document_is_valid(api: Api) -> None:
    """The document breaks no rule of OpenAPI 3.1, its defaults included."""
    document = (await api.get("openapi.json")).json
    found = OpenAPIV31SpecValidator(document).iter_errors()
    assert [error.message for error in found] == []


@pytest.mark.parametrize("wrong", [False, True], ids=["fitting", "wrong"])
def test_requests_made_from_the_document_are_answered(processes: ProcessGroup, settings: Settings, wrong: bool) -> None:
    """Requests that fit the document, or break it somewhere, are no fault of ours, and answers are as it says."""
    served = serve(processes, settings, "--no-aggregator")
    with requests.Session() as session:
        document = json.loads(session.get(f"{served.url}/openapi.json").content)
        for operation in operations_of(document):
            if not wrong or takes_something(operation):
                send_many(operation, served.url, session, wrong=wrong)
    assert served.events("request_failed") == []
    assert served.process.terminate() == 0


def operations_of(document: dict[str, Any]) -> list[Any]:
    """All operations but the stream without end."""
    found = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]
    assert len(found) > 40
    return [operation for operation in found if operation.path != ENDLESS]


def takes_something(operation: Any) -> bool:
    """Whether a request to it can be wrong: a path with any text in it, and nothing else, cannot."""
    return bool(operation.body) or bool(operation.query)


def at_once(body: object) -> object:
    """The body of a dequeue that does not wait: it might for a month, as the queue is empty."""
    return {**cast("dict[str, Any]", body), "wait": 0} if isinstance(body, dict) else body


def send_many(operation: Any, url: str, session: requests.Session, *, wrong: bool) -> None:
    """Send some requests to one operation and check each answer that is no complaint."""
    mode = schemathesis.GenerationMode.NEGATIVE if wrong else schemathesis.GenerationMode.POSITIVE
    wanted = [openapi_checks.content_type_conformance, openapi_checks.response_schema_conformance]
    if operation.path not in NOT_KEPT:
        wanted.append(checks.not_a_server_error)

    @EXAMPLES
    @given(operation.as_strategy(mode))
    def send(case: Any) -> None:
        if operation.path.endswith("/dequeue"):
            case.body = at_once(case.body)
        response = case.call(base_url=url, session=session)
        if not 400 <= response.status_code < 500:
            case.validate_response(response, checks=wanted)

    send()
