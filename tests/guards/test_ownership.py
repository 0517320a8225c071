"""Time, environment, client, commands and key names each have one owner."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.guards.sources import (
    Source,
    all_package_sources,
    call_name,
    imported_modules,
    sources_of_tests,
    top_package,
)

CLOCK = "agl_streams/clock.py"
CONFIG = "agl_streams/config.py"
FUNCTIONS = "agl_streams/functions.py"
KEYS = "agl_streams/keys.py"
LOGGER = "agl_streams/logger.py"
WAITING = "tests/support/waiting.py"
MAX_REDIS_MODULES = 3
KEY_PREFIX = "agl:"  # how every key of the store begins

_CLOCK_CALLS = {
    *(f"datetime.{name}" for name in ("now", "utcnow", "today")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
    "date.today",
}


def reads_time(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and "time" in imported_modules(node):
            yield node.lineno
        if isinstance(node, ast.Call) and call_name(node) in _CLOCK_CALLS:
            yield node.lineno


def naps(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and {"asyncio.sleep", "time.sleep"} & set(imported_modules(node)):
            yield node.lineno
        if isinstance(node, ast.Call) and call_name(node).rpartition(".")[2] == "sleep":
            yield node.lineno


def reads_environment(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv"):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and {"os.environ", "os.getenv"} & set(imported_modules(node)):
            yield node.lineno


def imports_client(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        if any(top_package(module) in ("redis", "valkey", "hiredis") for module in imported_modules(node)):
            yield getattr(node, "lineno", 0)


def calls_functions(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and call_name(node).rpartition(".")[2].startswith("fcall"):
            yield node.lineno
        if isinstance(node, ast.Constant) and node.value in ("FCALL", "FCALL_RO", b"FCALL", b"FCALL_RO"):
            yield node.lineno


def builds_keys(source: Source) -> Iterator[int]:
    """A key begins ``agl:{``: written out in a literal, or as a literal that begins an f-string or a sum."""
    docstrings = set(_docstrings(source.tree))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and node not in docstrings:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str) and (text.startswith(KEY_PREFIX) or KEY_PREFIX + "{" in text):
                yield node.lineno


def makes_loggers(source: Source) -> Iterator[int]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and call_name(node) in ("structlog.get_logger", "structlog.wrap_logger"):
            yield node.lineno


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


Rule = Callable[[Source], Iterator[int]]

OWNED: list[tuple[str, Rule, set[str]]] = [
    ("reads a clock", reads_time, {CLOCK}),
    ("naps", naps, {CLOCK}),
    ("reads the environment", reads_environment, {CONFIG}),
    ("calls a function of the server", calls_functions, {FUNCTIONS}),
    ("builds a key", builds_keys, {KEYS}),
    ("makes a logger", makes_loggers, {LOGGER}),
]


@pytest.mark.parametrize(("what", "rule", "owners"), OWNED, ids=[what for what, _, _ in OWNED])
def test_each_concern_has_one_owner(what: str, rule: Rule, owners: set[str]) -> None:
    """Outside its owner nobody reads time or environment, naps, calls server functions or builds keys."""
    sources = all_package_sources()
    assert owners <= {source.name for source in sources}, f"the owner of '{what}' has moved"
    found = [f"{s.name}:{line} {what}" for s in sources if s.name not in owners for line in rule(s)]
    assert found == []
    assert any(list(rule(source)) for source in sources if source.name in owners), "the owner no longer does it"


def test_the_redis_client_is_imported_in_few_modules() -> None:
    """At most three modules know the client library."""
    users = {source.name for source in all_package_sources() if list(imports_client(source))}
    assert 0 < len(users) <= MAX_REDIS_MODULES, sorted(users)


def test_tests_wait_for_conditions() -> None:
    """No test naps; only the waiting helper looks again after a while."""
    found = [f"{s.name}:{line}" for s in sources_of_tests() if s.name != WAITING for line in naps(s)]
    assert found == []


def test_story_tests_use_real_objects() -> None:
    """The tests that read as a tutorial, and all others, replace nothing by a mock."""
    found = [
        f"{source.name}:{node.lineno}"
        for source in sources_of_tests()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        if any(module.startswith(("unittest.mock", "mock")) for module in imported_modules(node))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (reads_time, "import time"),
        (reads_time, "from time import monotonic"),
        (reads_time, "datetime.now(UTC)"),
        (naps, "await asyncio.sleep(1)"),
        (naps, "from asyncio import sleep"),
        (reads_environment, "os.environ['X']"),
        (reads_environment, "from os import getenv"),
        (imports_client, "from redis.asyncio import Redis"),
        (calls_functions, "client.fcall('f', 1)"),
        (calls_functions, "connection.execute('FCALL', 'f', 1)"),
        (builds_keys, "key = f'agl:{{{ns}.{shard}}}:log'"),
        (builds_keys, "key = b'agl:{default.0}:log'"),
        (builds_keys, "key = 'agl:' + rest"),
        (makes_loggers, "_log = structlog.get_logger()"),
    ],
)
def test_these_rules_find_what_they_forbid(rule: Rule, code: str) -> None:
    """Each rule of this file reports a sample that breaks it."""
    assert list(rule(Source("sample.py", code))) == [1]
