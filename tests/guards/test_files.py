"""Files stay small, speak of this project alone, and carry nothing of the machine they were written on."""

from __future__ import annotations

import re

import pytest

from tests.guards.sources import ROOT, Source, all_package_sources, lua_sources, project_files, read, sources_of_tests

PYTHON_CAP = 400
TEST_CAP = 500
LUA_CAP = 90
# Files above the cap, with the number of lines that they may have: never raise one, lower it when the file shrinks.
ABOVE_CAP: dict[str, int] = {}
SLACK = 20  # a file that has shrunk by more than this must lower its number

TEXT_SUFFIXES = {".py", ".lua", ".toml", ".md", ".yml", ".yaml", ".json", ".jsonl", ".txt", ".sh", ".cfg", ".ini", ""}

# The patterns are put together here so that this file does not match itself.
_HOSTS = (
    "pypi" + r"\.org",
    "python" + r"hosted\.org",
    "npm" + r"js\.org",
    "registry" + r"\.npm",
    "deb" + r"\.debian\.org",
)
_MACHINE = re.compile(r"(?<![\w./-])/(?:work|root|home/\w+|Users/\w+)/")
_REGISTRY = re.compile("|".join(_HOSTS))
_SECRET = re.compile("BEGIN (?:RSA |EC |OPENSSH )?PRIVATE" + " KEY|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}")


def strange(source: Source) -> list[str]:
    """Lines that hold a path of some machine, the host of a package registry or a secret."""
    return [
        f"{source.name}:{number} has {what}"
        for number, line in enumerate(source.text.splitlines(), 1)
        for what, pattern in (("a machine path", _MACHINE), ("a registry host", _REGISTRY), ("a secret", _SECRET))
        if pattern.search(line)
    ]


def too_long(source: Source, cap: int) -> str | None:
    lines = len(source.text.splitlines())
    allowed = ABOVE_CAP.get(source.name, cap)
    if lines > allowed:
        return f"{source.name} has {lines} lines, above {allowed}: split it by meaning"
    if allowed > cap and lines < allowed - SLACK:
        return f"{source.name} has shrunk to {lines} lines: lower its number ({allowed}) in ABOVE_CAP"
    return None


def test_no_file_carries_a_machine_path_registry_host_or_secret() -> None:
    """What is committed works anywhere and tells nothing of where it was written."""
    names = [name for name in project_files() if (ROOT / name).suffix in TEXT_SUFFIXES]
    assert len(names) > len(all_package_sources())
    assert [line for name in names for line in strange(read(name))] == []


def test_files_stay_under_their_cap() -> None:
    """No file outgrows the cap of its kind, and exceptions only shrink."""
    capped = [
        *((source, PYTHON_CAP) for source in all_package_sources()),
        *((source, TEST_CAP) for source in sources_of_tests()),
        *((source, LUA_CAP) for source in lua_sources()),
    ]
    assert [problem for source, cap in capped if (problem := too_long(source, cap))] == []
    assert set(ABOVE_CAP) <= {source.name for source, _ in capped}, "ABOVE_CAP names a file that is gone"


@pytest.mark.parametrize(
    "line",
    ["see /" + "work/main/x", "open('/" + "root/.cache')", "https://" + "pypi" + ".org/simple", "ghp_" + "a" * 36],
)
def test_a_strange_line_is_found(line: str) -> None:
    """A machine path, a registry host and a token are each reported."""
    assert len(strange(Source("sample.md", line))) == 1


def test_a_long_file_is_found() -> None:
    """A file of one line more than its cap is reported."""
    assert too_long(Source("sample.py", "x\n" * (PYTHON_CAP + 1)), PYTHON_CAP) is not None
    assert too_long(Source("sample.py", "x\n" * PYTHON_CAP), PYTHON_CAP) is None
