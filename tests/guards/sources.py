"""What the guards look at: the project's files, their syntax trees and their comments.

Every finder fails when it finds nothing, so that no guard passes because a folder was renamed.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "agl_streams": ROOT / "agl_streams",
    "agl_workers": ROOT / "workers" / "agl_workers",
    "agl_proxy": ROOT / "proxy" / "agl_proxy",
}


@dataclass(frozen=True)
class Source:
    """A text file of the project; ``name`` is its path from the root, with forward slashes."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _tree(self.name, self.text)

    def line(self, number: int) -> str:
        """The line of that number, counted from 1."""
        return self.text.splitlines()[number - 1]

    def comments(self) -> Iterator[tuple[int, str]]:
        """Line number and text of each comment (of a Python file)."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


@cache
def _tree(name: str, text: str) -> ast.Module:
    return ast.parse(text, filename=name)


@cache
def project_files() -> tuple[str, ...]:
    """Every file that is or would be under version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    names = tuple(sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file()))
    assert "pyproject.toml" in names, f"git lists no pyproject.toml in {ROOT}"
    return names


@cache
def read(name: str) -> Source:
    return Source(name, (ROOT / name).read_text(encoding="utf-8"))


def _below(folder: Path, suffix: str) -> list[Source]:
    prefix = folder.relative_to(ROOT).as_posix() + "/"
    found = [read(name) for name in project_files() if name.startswith(prefix) and name.endswith(suffix)]
    assert found, f"no {suffix} file below {prefix}: has the folder moved?"
    return found


def package_sources(package: str) -> list[Source]:
    """The Python files of one import package."""
    return _below(PACKAGES[package], ".py")


def all_package_sources() -> list[Source]:
    return [source for package in PACKAGES for source in package_sources(package)]


def sources_of_tests() -> list[Source]:
    """The Python files below tests/."""
    return _below(ROOT / "tests", ".py")


def lua_sources() -> list[Source]:
    return _below(ROOT / "agl_streams" / "lua", ".lua")


def imported_modules(node: ast.AST) -> list[str]:
    """The absolute dotted names that an import statement names; of ``from a import b`` both ``a`` and ``a.b``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def top_package(module: str) -> str:
    return module.partition(".")[0]


def call_name(node: ast.Call) -> str:
    """The dotted name that a call calls, as written; empty when it is not a plain name."""
    parts: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return ".".join(["?", *reversed(parts)]) if parts else ""
    return ".".join([target.id, *reversed(parts)])
