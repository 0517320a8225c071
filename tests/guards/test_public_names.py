"""The public surface is a written list: complete, sorted, resolvable, and the same for people and for type checkers."""

from __future__ import annotations

import ast
import importlib

import pytest

import agl_streams
from tests.guards.sources import Source, all_package_sources, read

INIT = "agl_streams/__init__.py"


def names_for_type_checkers(source: Source) -> dict[str, str]:
    """Name -> module of the imports under ``if TYPE_CHECKING:``."""
    blocks = [n for n in source.tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {
        alias.asname or alias.name: node.module
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def written_list(source: Source) -> list[str] | None:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            value: object = ast.literal_eval(node.value)
            assert isinstance(value, list | tuple), f"{source.name}: __all__ must be a literal list"
            return [str(name) for name in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  a literal's members are unknown to the checker
    return None


def reading_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each by name: the order that ruff keeps too (RUF022)."""
    if name.isupper():
        return (0, name)
    return (1, name) if name[:1].isupper() else (2, name)


def homes(source: Source) -> dict[str, str]:
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{source.name} has no _HOMES")


def test_the_list_the_table_and_the_type_checker_agree() -> None:
    """The three places that tell the public names and their homes say the same."""
    source = read(INIT)
    assert agl_streams.__all__, "no public name at all"
    assert sorted(homes(source)) == sorted(agl_streams.__all__)
    assert names_for_type_checkers(source) == homes(source)


def test_every_written_list_is_sorted_and_true() -> None:
    """Each `__all__` in the project is sorted, has no double, and names only what its module has."""
    lists = {source.name: names for source in all_package_sources() if (names := written_list(source)) is not None}
    assert INIT in lists
    for file, names in lists.items():
        assert names == sorted(set(names), key=reading_order), f"{file}: __all__ is not sorted or has doubles"
        parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
        module = importlib.import_module(".".join(part for part in parts if part not in ("workers", "proxy")))
        assert [name for name in names if not hasattr(module, name)] == [], file


@pytest.mark.parametrize("name", agl_streams.__all__)
def test_each_public_name_resolves_to_its_home(name: str) -> None:
    """A public name is the object of that name in its home module, and `dir` shows it."""
    home = importlib.import_module(homes(read(INIT))[name])
    assert getattr(agl_streams, name) is getattr(home, name)
    assert name in dir(agl_streams)


def test_the_version_is_that_of_the_distribution() -> None:
    """`__version__` is read from the installed metadata."""
    assert agl_streams.__version__ == importlib.import_module("importlib.metadata").version("agl-streams")


def test_an_unknown_name_is_refused() -> None:
    """A name that is not public raises AttributeError and names the package."""
    with pytest.raises(AttributeError, match=r"module 'agl_streams' has no attribute 'nonsense'"):
        _ = getattr(agl_streams, "nonsense")  # noqa: B009  a plain attribute would not pass the type checker
