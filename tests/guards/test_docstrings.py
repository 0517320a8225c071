"""Tests read as sentences; modules and public names say what they are for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.guards.sources import Source, all_package_sources, sources_of_tests

_SECOND_SENTENCE = re.compile(r"[.!?]\s+[A-Z]")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, Definition):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)


def behaviours(source: Source) -> list[Definition]:
    return [node for node in _definitions(source.tree.body) if node.name.startswith("test_")]


def complaint(docstring: str | None) -> str | None:
    """What is wrong with a test's docstring; None when it is a sentence that states a behaviour."""
    text = " ".join((docstring or "").split())
    if not text:
        return "has no docstring"
    if text.lower().startswith("test"):
        return "begins with 'Test': state the behaviour"
    if not text.endswith("."):
        return "is not a sentence: it has no full stop"
    if _SECOND_SENTENCE.search(text):
        return "is more than one sentence"
    return None


def undocumented(source: Source) -> Iterator[str]:
    """Public functions, classes and methods without a docstring; a module without one."""
    if ast.get_docstring(source.tree) is None and source.text.strip():
        yield f"{source.name}: the module has no docstring"
    if PurePosixPath(source.name).name.startswith("_") and not source.name.endswith("__init__.py"):
        return
    yield from (f"{source.name}:{node.lineno} {name}" for node, name in _public(source.tree.body, ""))


def _public(body: list[ast.stmt], owner: str) -> Iterator[tuple[Definition, str]]:
    for node in body:
        if not isinstance(node, Definition) or node.name.startswith("_"):
            continue
        if _inherits_its_docstring(node) or _is_a_signature(node):
            continue
        if ast.get_docstring(node) is None:
            yield node, owner + node.name
        if isinstance(node, ast.ClassDef):
            yield from _public(node.body, f"{owner}{node.name}.")


def _inherits_its_docstring(node: Definition) -> bool:
    return any(
        ast.unparse(item).rpartition(".")[2] in ("overload", "override", "setter") for item in node.decorator_list
    )


def _is_a_signature(node: Definition) -> bool:
    """A member of a Protocol that only repeats another library's signature: its class says which."""
    return not isinstance(node, ast.ClassDef) and ast.unparse(node.body[-1]) == "..." and len(node.body) == 1


def test_every_test_states_a_behaviour() -> None:
    """Each test has a docstring of one sentence that says what holds."""
    found = [
        f"{source.name}:{node.lineno} {node.name} {problem}"
        for source in sources_of_tests()
        for node in behaviours(source)
        if (problem := complaint(ast.get_docstring(node)))
    ]
    assert found == []


def test_modules_and_public_names_are_documented() -> None:
    """Each module, public class, function and method of the three packages has a docstring."""
    assert [line for source in all_package_sources() for line in undocumented(source)] == []


@pytest.mark.parametrize(
    "docstring", [None, "", "Tests that it works.", "A queue is first in, first out", "It works. It works again."]
)
def test_a_docstring_that_is_no_sentence_is_found(docstring: str | None) -> None:
    """A missing, unfinished or doubled sentence is reported, and one that begins with 'Test'."""
    assert complaint(docstring) is not None


def test_a_sentence_passes() -> None:
    """A plain sentence is not reported."""
    assert complaint("A queue is first in,\n    first out.") is None


def test_an_undocumented_name_is_found() -> None:
    """A module and a public function without docstrings are reported, a private one is not."""
    sample = Source("sample.py", "def f():\n    pass\n\ndef _g():\n    pass\n")
    assert list(undocumented(sample)) == ["sample.py: the module has no docstring", "sample.py:1 f"]
