"""The exception tree: drawn where it is defined, complete, and the only thing that a fault of the client becomes."""

from __future__ import annotations

import inspect
import re

import pytest
from redis import exceptions as redis_errors

from agl_streams import errors
from agl_streams.errors import AglError
from agl_streams.wire import translate

_BRANCH = re.compile(r"^(?P<stem>[│ ]*)[├└]── (?P<name>\w+)(?P<value_error> \(ValueError\))?", re.MULTILINE)
_INDENT = 4
URL = "redis://localhost:6379"


def drawn_parents() -> dict[str, str]:
    """Class name -> name of its parent, as the docstring of the module draws them."""
    above = ["AglError"]
    parents: dict[str, str] = {}
    for match in _BRANCH.finditer(errors.__doc__ or ""):
        depth = len(match["stem"]) // _INDENT + 1
        parents[match["name"]] = above[depth - 1]
        above[depth:] = [match["name"]]
    assert parents, "no tree is drawn"
    return parents


def defined() -> dict[str, type[AglError]]:
    found = {
        name: value for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, AglError)
    }
    return {name: value for name, value in found.items() if value is not AglError}


REDIS_ERRORS = sorted(
    (
        kind
        for kind in vars(redis_errors).values()
        if inspect.isclass(kind) and issubclass(kind, redis_errors.RedisError)
    ),
    key=lambda kind: kind.__name__,
)


def test_the_drawn_tree_is_the_real_one() -> None:
    """Each error stands in the drawing under the class that it derives from, and nothing else does."""
    assert {name: kind.__bases__[0].__name__ for name, kind in defined().items()} == drawn_parents()


def test_the_drawing_tells_which_are_value_errors() -> None:
    """The drawing marks the roots of what Agent-lightning raises as ValueError, and they are ValueErrors."""
    marked = {match["name"] for match in _BRANCH.finditer(errors.__doc__ or "") if match["value_error"]}
    assert marked
    assert {name for name, kind in defined().items() if ValueError in kind.__bases__} == marked


def test_every_class_of_the_client_is_looked_at() -> None:
    """The list of the client's errors is not empty by accident."""
    assert {redis_errors.ConnectionError, redis_errors.ResponseError, redis_errors.TimeoutError} <= set(REDIS_ERRORS)


@pytest.mark.parametrize("kind", REDIS_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_client_becomes_one_of_ours(kind: type[Exception]) -> None:
    """Whatever the client raises, the caller gets an error of the tree that names the server or its answer."""
    fault = kind.__new__(kind)
    Exception.__init__(fault, "ERR something went wrong")
    translated = translate(fault, URL)
    assert isinstance(translated, AglError)
    assert URL in str(translated) or "something went wrong" in str(translated)


@pytest.mark.parametrize("fault", [OSError("no route"), ConnectionResetError("reset"), TimeoutError()])
def test_faults_of_the_network_become_store_unavailable(fault: BaseException) -> None:
    """A broken connection or a time-out tells that trying later may help."""
    assert isinstance(translate(fault, URL), errors.StoreUnavailable)
