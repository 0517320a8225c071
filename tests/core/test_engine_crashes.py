"""The embedded server when processes are killed: no orphan, no stale file in the way, no second server on the data."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from agl_streams.engine import Engine
from agl_streams.errors import EngineError
from tests.support.processes import Process, ProcessGroup, is_alive
from tests.support.raw import ask
from tests.support.waiting import until_blocking

HOLDER = """
import os, signal, sys, threading
from pathlib import Path
from agl_streams.engine import Engine

mode = sys.argv[2]
if mode == "thread":  # a server outlives the thread that started it
    thread = threading.Thread(target=lambda: globals().update(engine=Engine.start(Path(sys.argv[1]))))
    thread.start()
    thread.join()
else:
    engine = Engine.start(Path(sys.argv[1]))
child = os.fork() if mode == "fork" else None
if child == 0:
    signal.pause()
print("holding", engine.started, engine.pid, engine.url, child, flush=True)
if mode == "exit":
    sys.exit()
signal.pause()
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist yet."""
    return tmp_path / "data"


def hold(processes: ProcessGroup, data_dir: Path, mode: str = "plain") -> tuple[Process, int, str]:
    """A process that holds an engine, the pid of the server and its URL."""
    process = processes.python(HOLDER, str(data_dir), mode)
    process.printed("holding")
    line = next(line for line in process.output.splitlines() if line.startswith("holding"))
    _, _, pid, url, _ = line.split()
    return process, int(pid), url


def gone(pid: int) -> None:
    until_blocking(lambda: not is_alive(pid), what=f"server {pid} to be gone")


@pytest.mark.parametrize("mode", ["plain", "thread", "fork"])
def test_a_killed_starter_leaves_no_orphan(processes: ProcessGroup, data_dir: Path, mode: str) -> None:
    """SIGKILL of the starter ends its server, also when a fork of the starter lives on; the next start begins anew."""
    process, pid, url = hold(processes, data_dir, mode)
    assert ask(url, "SET", "kept", "1") == b"OK"
    process.kill()
    with Engine.start(data_dir) as engine:
        assert engine.started  # at once, although the old server answered a moment ago
        assert not is_alive(pid)
    if mode == "fork":
        os.kill(int(process.output.split("holding")[1].split()[3]), signal.SIGKILL)
    with Engine.start(data_dir) as engine:
        assert engine.started
        assert ask(engine.url, "GET", "kept") == b"1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signalled_starter_leaves_no_orphan(processes: ProcessGroup, data_dir: Path, number: signal.Signals) -> None:
    """However the starter ends, the server ends."""
    process, pid, _ = hold(processes, data_dir)
    process.signal(number)
    process.wait()
    gone(pid)


def test_a_starter_that_forgets_to_stop_leaves_no_orphan(processes: ProcessGroup, data_dir: Path) -> None:
    """A starter that exits without stop ends the server at its exit."""
    process, pid, _ = hold(processes, data_dir, "exit")
    assert process.wait() == 0, process.output
    gone(pid)


def test_a_server_outlives_the_thread_that_started_it(processes: ProcessGroup, data_dir: Path) -> None:
    """The end of the starting thread is not the end of the server."""
    process, pid, url = hold(processes, data_dir, "thread")
    assert ask(url, "PING") == b"PONG"
    assert process.running
    assert is_alive(pid)


def test_one_of_many_starters_starts(processes: ProcessGroup, data_dir: Path) -> None:
    """Of several processes that start at once one starts the server and the others join it."""
    several = [processes.python(HOLDER, str(data_dir), "plain") for _ in range(6)]
    for process in several:
        process.printed("holding")
    lines = [process.output.split("holding ")[1].split() for process in several]
    assert sorted(started for started, *_ in lines) == ["False"] * 5 + ["True"]
    assert len({(pid, url) for _, pid, url, _ in lines}) == 1


def test_joined_users_end_without_harm(processes: ProcessGroup, data_dir: Path) -> None:
    """A joined process that is killed takes nothing with it."""
    with Engine.start(data_dir) as engine:
        process, pid, url = hold(processes, data_dir)
        assert (pid, url) == (engine.pid, engine.url)
        process.kill()
        assert ask(engine.url, "PING") == b"PONG"


def test_a_crashed_server_is_started_again(data_dir: Path) -> None:
    """After SIGKILL of the server its stale socket is cleared away and its data is loaded, round after round."""
    for number in range(5):
        engine = Engine.start(data_dir, appendfsync="always")
        assert engine.started
        assert ask(engine.url, "INCR", "starts") == number + 1
        os.kill(engine.pid, signal.SIGKILL)
        again = Engine.start(data_dir, appendfsync="always")  # the crashed one's object has not noticed yet
        assert again.started
        assert ask(again.url, "GET", "starts") == b"%d" % (number + 1)
        with pytest.raises(EngineError, match="status -9"):
            engine.stop()
        assert ask(again.url, "PING") == b"PONG"
        again.stop()


def test_stale_files_do_not_mislead(data_dir: Path) -> None:
    """Files of a crashed predecessor, a socket that nobody serves and a record of another place, are no obstacle."""
    with Engine.start(data_dir) as engine:
        socket_path = Path(engine.url.removeprefix("unix://"))
    (data_dir / "run" / "socket").write_text("/nowhere/valkey.sock")
    socket_path.write_text("not a socket")
    with Engine.start(data_dir) as engine:
        assert engine.started


def test_a_truncated_log_is_loaded(data_dir: Path) -> None:
    """An append-only file that was cut off in the middle of a write is loaded up to that write."""
    with Engine.start(data_dir) as engine:
        for number in range(10):
            ask(engine.url, "SET", f"key-{number}", "value" * 100)
    (log,) = (data_dir / "appendonlydir").glob("*.incr.aof")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 50)
    with Engine.start(data_dir) as engine:
        assert ask(engine.url, "DBSIZE") == 9


def test_a_damaged_log_is_told(data_dir: Path) -> None:
    """An append-only file that is damaged in the middle stops the start with the server's own words."""
    with Engine.start(data_dir) as engine:
        for number in range(10):
            ask(engine.url, "SET", f"key-{number}", "value" * 100)
    (log,) = (data_dir / "appendonlydir").glob("*.incr.aof")
    content = bytearray(log.read_bytes())
    content[1_000:1_100] = b"x" * 100
    log.write_bytes(content)
    with pytest.raises(EngineError, match=r"(?s)ended with status 1.*Bad file format"):
        Engine.start(data_dir)


def test_a_server_without_its_socket_is_not_doubled(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server lives whose socket file was removed, no second one is started on its data."""
    monkeypatch.setattr("agl_streams.engine.ANSWER_TIMEOUT_S", 0.2)
    with Engine.start(data_dir) as engine:
        Path(engine.url.removeprefix("unix://")).unlink()
        with pytest.raises(EngineError, match="does not answer"):
            Engine.start(data_dir)
        assert is_alive(engine.pid)


def test_a_hanging_server_is_told_and_killed_by_stop(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs is not joined, and its starter's stop kills it and says so."""
    monkeypatch.setattr("agl_streams.engine.ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr("agl_streams.engine.ASK_TIMEOUT_S", 0.2)
    monkeypatch.setattr("agl_streams.engine.SHUTDOWN_TIMEOUT_S", 0.1)
    monkeypatch.setattr("agl_streams.engine.STOP_TIMEOUT_S", 0.5)
    engine = Engine.start(data_dir)
    os.kill(engine.pid, signal.SIGSTOP)
    with pytest.raises(EngineError, match="does not answer"):
        Engine.start(data_dir)
    with pytest.raises(EngineError, match="ended with status -9"):
        engine.stop()
    gone(engine.pid)


def test_an_orphan_is_ended(processes: ProcessGroup, data_dir: Path) -> None:
    """A server that lost its starter and its guardian is ended by the next start, which loads its data."""
    process, pid, url = hold(processes, data_dir)
    ask(url, "SET", "kept", "1")
    listed = subprocess.run(["ps", "-o", "pid=", "-s", str(os.getsid(pid))], check=True, capture_output=True, text=True)
    guardians = {int(line) for line in listed.stdout.split()} - {pid}
    assert guardians
    for guardian in guardians:
        os.kill(guardian, signal.SIGKILL)
    process.kill()
    assert ask(url, "PING") == b"PONG"
    with Engine.start(data_dir) as engine:
        assert engine.started
        assert ask(engine.url, "GET", "kept") == b"1"


def test_a_starter_killed_at_its_start_is_no_obstacle(processes: ProcessGroup, data_dir: Path) -> None:
    """A starter killed at any moment of its start leaves a directory on which the next start works."""
    for moment in ("run/starting", "run/alive", "run/socket", "run/valkey.conf", "run/valkey.sock"):
        process = processes.python(HOLDER, str(data_dir), "plain")
        until_blocking(lambda path=data_dir / moment: path.exists(), what=moment)
        process.kill()
        with Engine.start(data_dir) as engine:
            assert ask(engine.url, "INCR", "starts")
        (data_dir / moment).unlink(missing_ok=True)
