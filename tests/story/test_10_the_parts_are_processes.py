"""Chapter 10: in earnest each part is a process; these are the examples of the README, run as they stand there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.engine_standin import TOKENS, EngineStandin
from tests.support.processes import ROOT, Process, ProcessGroup
from tests.support.servers import free_port
from tests.support.waiting import until

LEARNER_S = 60.0  # five interpreters start on what may be a busy machine

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROXY_OF_THE_README = "http://localhost:4750/v1"
MODEL_OF_THE_README = "http://localhost:8000"


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language in the README, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


class Readme:
    """The examples in a folder of their own, against the test's server."""

    def __init__(self, folder: Path, processes: ProcessGroup, redis_url: str, namespace: str) -> None:
        self._folder = folder
        self._processes = processes
        self._env = {"AGL_REDIS_URL": redis_url, "AGL_NAMESPACE": namespace, "PYTHONPATH": str(folder)}

    def write(self, name: str, text: str) -> Path:
        """Put an example into its file."""
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def python(self, path: Path) -> Process:
        """``python FILE``."""
        return self._processes.start(sys.executable, str(path), name=path.name, env=self._env)

    def command(self, line: str, **env: str) -> Process:
        """A line of the shell that begins with ``agl-streams``."""
        _, *arguments = shlex.split(line.removesuffix("&"))
        return self._processes.module("agl_streams.cli", *arguments, name=arguments[0], env={**self._env, **env})


@pytest.fixture
def readme(tmp_path: Path, processes: ProcessGroup, redis_url: str, namespace: str) -> Readme:
    """The examples of the README."""
    return Readme(tmp_path, processes, redis_url, namespace)


async def test_the_store_by_itself(readme: Readme, tmp_path: Path) -> None:
    """The first example starts a server of its own, takes a rollout from the queue to its end, and stops."""
    example = blocks("python")[0].replace('Path("data")', f"Path({str(tmp_path / 'data')!r})")

    process = readme.python(readme.write("store.py", example))

    await until(lambda: not process.running, what="the example to end")
    assert process.wait() == 0
    assert "succeeded {'question': 'What is 2 + 2?'}" in process.output


async def test_learner_proxy_runners_and_aggregator(readme: Readme, engine: EngineStandin) -> None:
    """The learner of the README gets the tokens and rewards of every task from runners that are other processes."""
    port = free_port()
    _, agent, learner = blocks("python")
    readme.write("my_agent.py", agent)
    aggregate, proxy, worker = [line for line in blocks("sh")[0].splitlines() if line.startswith("agl-streams")]
    parts = [
        readme.command(aggregate),
        readme.command(proxy.replace(MODEL_OF_THE_README, engine.url), AGL_PROXY_PORT=str(port)),
        readme.command(worker),
    ]
    parts[1].printed("proxy_listening")

    example = learner.replace(PROXY_OF_THE_README, f"http://localhost:{port}/v1")
    process = readme.python(readme.write("learn.py", example))

    await until(lambda: not process.running, what="the learner to end", timeout_s=LEARNER_S)
    assert process.wait() == 0
    tokens, logprobs = [token.id for token in TOKENS], [token.logprob for token in TOKENS]
    assert process.output.splitlines().count(f"succeeded 0.0 {tokens} {logprobs}") == 10
    assert [part.terminate() for part in parts] == [0, 0, 0]
