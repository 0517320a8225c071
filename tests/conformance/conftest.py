"""Two servers for each test: ours, in a process of the other virtual environment, and agentlightning's, in this one."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agentlightning import InMemoryLightningStore, LightningStoreServer

from tests.conformance.compare import Both
from tests.conformance.differences import ALLOWED
from tests.support.processes import ProcessGroup

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class OurServer:
    """Where ours is.

    Attributes:
        redis: of its engine.
    """

    url: str
    redis: str
    namespace: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the other virtual environment is."""
    parser.addoption("--our-python", default=str(ROOT / ".venv/bin/python"), help="interpreter that has agl-streams")


@pytest.fixture(scope="session")
def our_python(request: pytest.FixtureRequest) -> str:
    """The interpreter that has agl-streams."""
    return str(request.config.getoption("--our-python"))


@pytest.fixture(scope="session")
def our_servers(our_python: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    """The process that serves ours; its log is shown when it breaks."""
    log = tmp_path_factory.mktemp("ours") / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [our_python, str(HERE / "our_servers.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )
    yield process
    assert process.stdin
    process.stdin.close()
    assert process.wait(30) == 0, log.read_text()
    process.stdout.close()


@pytest.fixture
def our_server(our_servers: Any) -> Generator[OurServer]:
    """Ours, empty."""
    our_servers.stdin.write("start\n")
    line = our_servers.stdout.readline()
    assert line, "our server did not start"
    yield OurServer(**json.loads(line))
    our_servers.stdin.write("end\n")


@pytest.fixture
async def their_url() -> AsyncGenerator[str]:
    """Agentlightning's own server on its memory store, empty; it looks for overdue attempts at every call."""
    store = InMemoryLightningStore(thread_safe=True, scan_debounce_seconds=0)
    server = LightningStoreServer(store, host="127.0.0.1", port=free_port(), launch_mode="asyncio")
    await server.start()
    yield server.endpoint
    await server.stop()


@pytest.fixture
def both(request: pytest.FixtureRequest, our_server: OurServer, their_url: str) -> Both:
    """The two, to compare."""
    allowed = [one for name in {request.node.originalname, request.node.name} for one in ALLOWED.get(name, [])]
    return Both(our_server.url, their_url, allowed)


@pytest.fixture
def processes(tmp_path: Path) -> Generator[ProcessGroup]:
    """Starts processes, which end with the test."""
    group = ProcessGroup(tmp_path)
    yield group
    group.close()
