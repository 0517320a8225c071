"""Fixtures of all tests: a real server per test process, a connection and a store on it, and a check for leaks."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from agl_streams.config import ENV_PREFIX, Settings, load_settings
from agl_streams.connection import RedisConnection
from agl_streams.engine import Engine
from tests.support.chaos_processes import Crew
from tests.support.leaks import all_keys, foreign_keys, left_in_groups
from tests.support.processes import ProcessGroup
from tests.support.raw import Raw
from tests.support.servers import Servers

if TYPE_CHECKING:
    from agl_streams.store import StreamStore

# How fast a machine makes examples says nothing of the code; a timed verdict has no place in a test.
hypothesis_settings.register_profile("agl-streams", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("agl-streams")

_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note failures, so that fixtures can show the logs of what they started."""
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


def _show_if_failed(request: pytest.FixtureRequest, what: str, text: str) -> None:
    node: pytest.Item = request.node
    if node.stash.get(_failed, False):
        node.add_report_section("teardown", what, text)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's shell reaches a test."""
    for name in [name for name in os.environ if name.startswith(ENV_PREFIX)]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def valkey() -> Generator[Engine]:
    """An embedded server, one for each test process."""
    directory = Path(tempfile.mkdtemp(prefix="agl-"))
    with Engine.start(directory) as engine:
        yield engine
    shutil.rmtree(directory)


@pytest.fixture
def redis_url(valkey: Engine) -> str:
    """URL of the embedded server."""
    return valkey.url


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(redis_url: str, namespace: str, tmp_path: Path) -> Settings:
    """Settings of a test: the embedded server, a fresh namespace, a data directory of its own."""
    return load_settings(redis_url=redis_url, namespace=namespace, data_dir=tmp_path / "data")


@pytest.fixture
async def connection(redis_url: str, settings: Settings) -> AsyncGenerator[RedisConnection]:
    """A connection to the embedded server."""
    connection = await RedisConnection.open(redis_url, settings=settings)
    yield connection
    await connection.close()


@pytest.fixture
async def store(settings: Settings) -> AsyncGenerator[StreamStore]:
    """A store on a fresh namespace of the embedded server."""
    from agl_streams.store import StreamStore  # tests of the engine and the client need no store

    store = await StreamStore.connect(settings=settings)
    yield store
    await store.close()


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Generator[Servers]:
    """Starts servers of a chosen binary and configuration; they end with the test."""
    servers = Servers()
    yield servers
    _show_if_failed(request, "servers", servers.report())
    servers.close()


@pytest.fixture
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[ProcessGroup]:
    """Starts processes; they end with the test, and their output is shown if it fails."""
    group = ProcessGroup(tmp_path)
    yield group
    _show_if_failed(request, "processes", group.report())
    group.close()


@pytest.fixture
def crew(settings: Settings, tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Crew]:
    """Starts aggregators and runners; they end with the test, and their output is shown if it fails."""
    crew = Crew(settings, tmp_path)
    yield crew
    _show_if_failed(request, "crew", crew.report())
    crew.close()


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Generator[None]:
    """Each test leaves only keys of the key table, no consumer and nothing pending; then its keys are removed."""
    if "valkey" not in request.fixturenames:
        yield
        return
    engine: Engine = request.getfixturevalue("valkey")
    with Raw(engine.url) as raw:
        before = all_keys(raw)
        yield
        made = all_keys(raw) - before
        lines = foreign_keys(made)
        if request.node.get_closest_marker("leaves_pending") is None:
            lines += left_in_groups(raw, made)
        if made:
            raw.execute("UNLINK", *made)
    assert not lines, "the test left behind:\n" + "\n".join(lines)
