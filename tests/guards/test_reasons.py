"""Every exception to a rule says on its line why it is one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.guards.sources import Source, all_package_sources, sources_of_tests

# A marker with its codes; what stands behind it is the reason.
_MARKERS = (
    re.compile(r"#\s*noqa(?P<codes>:\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?(?P<reason>.*)"),
    re.compile(r"#\s*pyright:\s*ignore(?P<codes>\[[^\]]*\])?(?P<reason>.*)"),
    re.compile(r"#\s*pragma:\s*(?P<codes>no (?:cover|branch))(?P<reason>.*)"),
)
# pyright reads no such comment here (enableTypeIgnoreComments is off).
_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore")
_FEWEST_WORDS = 2


def unexplained(source: Source) -> Iterator[str]:
    for number, comment in source.comments():
        if _TYPE_IGNORE.search(comment):
            yield f"{source.name}:{number} 'type: ignore' has no effect here; use 'pyright: ignore[rule]'"
        for marker in _MARKERS:
            match = marker.search(comment)
            if match is None:
                continue
            if not match["codes"]:
                yield f"{source.name}:{number} switches off every rule; name the one that is meant"
            elif len(re.findall(r"[^\W\d_]{2,}", match["reason"])) < _FEWEST_WORDS:
                yield f"{source.name}:{number} gives no reason"


def test_exceptions_to_lint_rules_carry_a_reason() -> None:
    """A `noqa`, `pyright: ignore` or `pragma` names its rule and its reason."""
    sources = [*all_package_sources(), *sources_of_tests()]
    assert [line for source in sources for line in unexplained(source)] == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: BLE001",
        "# noqa: BLE001, S110 ok",
        "# pyright: ignore",
        "# pyright: ignore[reportX]",
        "# pragma: no cover",
        "# type: ignore[arg-type]  with a long reason",
    ],
)
def test_a_bare_exception_is_found(comment: str) -> None:
    """An exception without rule or reason is reported."""
    assert len(list(unexplained(Source("sample.py", f"x = 1  {comment}\n")))) == 1


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: BLE001  the loop must outlive any fault of an agent",
        "# pyright: ignore[reportPrivateUsage]  the client offers no other way",
        "# pragma: no cover - only on macOS",
    ],
)
def test_an_explained_exception_passes(comment: str) -> None:
    """An exception with rule and reason is not reported."""
    assert list(unexplained(Source("sample.py", f"x = 1  {comment}\n"))) == []
