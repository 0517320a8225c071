"""Imports run one way, stand at the top of a module, and name what they take."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.guards.sources import PACKAGES, Source, all_package_sources, imported_modules, package_sources, top_package

FORBIDDEN = {
    "agl_streams": {"agl_workers", "agl_proxy", "tests"},
    "agl_workers": {"agl_proxy", "tests"},
    "agl_proxy": {"agl_workers", "tests"},
}
# Pure modules hold rules and data: they must be usable, and testable, without a server or an event loop.
PURE = ("models.py", "semconv.py", "lifecycle.py", "sums.py", "keys.py", "events.py", "errors.py", "adapters/")
IMPURE_MODULES = {"redis", "aiohttp", "asyncio", "agl_streams.connection", "agl_streams.functions", "agl_streams.store"}
# What may not be loaded by `import agl_streams` alone: each takes longer than the whole package may.
HEAVY = ("aiohttp", "fastapi", "numpy", "opentelemetry", "pydantic", "redis", "rich", "structlog", "typer")


def wrong_way(source: Source, forbidden: set[str]) -> list[str]:
    return [
        f"{source.name}:{node.lineno} imports {module}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in imported_modules(node)
        if top_package(module) in forbidden
    ]


def impure(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno} imports {module}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in imported_modules(node)
        if any(module == name or module.startswith(name + ".") for name in IMPURE_MODULES)
    ]


def relative_or_star(source: Source) -> list[str]:
    return [
        f"{source.name}:{node.lineno} {'star' if node.level == 0 else 'relative'} import"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and (node.level > 0 or any(alias.name == "*" for alias in node.names))
    ]


def unexplained_local_imports(source: Source) -> list[str]:
    comments = dict(source.comments())
    functions = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    imports = {
        node for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return [
        f"{source.name}:{node.lineno} import inside a function without its reason on the line"
        for node in imports
        if not comments.get(node.lineno, "").strip("# ")
    ]


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_imports_run_one_way(package: str) -> None:
    """The library imports neither workers nor proxy, and those two do not know each other."""
    assert [line for source in package_sources(package) for line in wrong_way(source, FORBIDDEN[package])] == []


def test_pure_modules_do_no_io() -> None:
    """Modules that hold rules and data import neither a client nor an event loop."""
    pure = [s for s in package_sources("agl_streams") if s.name.removeprefix("agl_streams/").startswith(PURE)]
    assert "agl_streams/errors.py" in {source.name for source in pure}
    assert [line for source in pure for line in impure(source)] == []


def test_imports_are_absolute_and_named() -> None:
    """No module imports by star or by dots."""
    assert [line for source in all_package_sources() for line in relative_or_star(source)] == []


def test_imports_inside_functions_give_their_reason() -> None:
    """An import inside a function says on its line why it cannot stand at the top."""
    assert [line for source in all_package_sources() for line in unexplained_local_imports(source)] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    """A bare import of the package leaves its dependencies unloaded until a name is used."""
    code = f"import sys, agl_streams; print([name for name in {HEAVY!r} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"


def test_these_rules_find_what_they_forbid() -> None:
    """Each rule of this file reports a sample that breaks it."""
    sample = Source(
        "sample.py",
        "import redis\nfrom agl_proxy.app import make\nfrom os import *\nfrom . import x\ndef f():\n    import json\n",
    )
    assert wrong_way(sample, {"agl_proxy"}) == [
        "sample.py:2 imports agl_proxy.app",
        "sample.py:2 imports agl_proxy.app.make",
    ]
    assert impure(sample) == ["sample.py:1 imports redis"]
    assert relative_or_star(sample) == ["sample.py:3 star import", "sample.py:4 relative import"]
    assert len(unexplained_local_imports(sample)) == 1
    assert unexplained_local_imports(Source("ok.py", "def f():\n    import json  # only here\n")) == []
