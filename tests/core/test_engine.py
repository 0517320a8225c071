"""The embedded server: started, joined, stopped; what it promises and what it refuses."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from agl_streams.connection import RedisConnection
from agl_streams.engine import Engine
from agl_streams.errors import EngineError
from tests.support.processes import ProcessGroup, is_alive
from tests.support.raw import Raw, ask
from tests.support.servers import ALL_BINARIES, find_binary, free_port
from tests.support.waiting import until_blocking

RUNS_AS_ROOT = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory that does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def engine(data_dir: Path) -> Generator[Engine]:
    """A running engine on ``data_dir``."""
    with Engine.start(data_dir) as engine:
        yield engine


def config_of(engine: Engine, name: str) -> bytes:
    return ask(engine.url, "CONFIG", "GET", name)[1]


def test_it_is_durable_private_and_never_evicts(engine: Engine, data_dir: Path) -> None:
    """A started engine keeps an append-only file, evicts nothing, opens no port, and lets no other user in."""
    assert engine.started
    promised = {
        "appendonly": b"yes",
        "appendfsync": b"everysec",
        "maxmemory-policy": b"noeviction",
        "port": b"0",
        "save": b"",
    }
    assert {name: config_of(engine, name) for name in promised} == promised
    socket_path = Path(os.fsdecode(config_of(engine, "unixsocket")))
    assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o700
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((data_dir / "appendonlydir").stat().st_mode) == 0o700


def test_its_pid_is_the_servers(engine: Engine) -> None:
    """The pid is that of the server itself, and it is gone after stop."""
    assert b"process_id:%d\r\n" % engine.pid in ask(engine.url, "INFO", "server")
    engine.stop()
    assert not is_alive(engine.pid)


def test_data_outlives_a_stop(data_dir: Path) -> None:
    """What was written before a stop is there after the next start; a stop may be repeated."""
    for number in range(3):
        engine = Engine.start(data_dir)
        assert ask(engine.url, "INCR", "starts") == number + 1
        engine.stop()
        engine.stop()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux shows the environment of a process")
@pytest.mark.parametrize("chosen", [None, "glibc.malloc.tcache_count=77"])
def test_the_allocator_keeps_freed_memory_at_hand(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    """The server's allocator is tuned for a store that holds much, unless its operator has tuned it."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if chosen:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)
    with Engine.start(data_dir) as engine:
        environment = Path(f"/proc/{engine.pid}/environ").read_text().split("\0")
    assert f"GLIBC_TUNABLES={chosen or 'glibc.malloc.tcache_count=1000'}" in environment


async def test_the_client_connects_to_it(engine: Engine) -> None:
    """Its URL is one that the client takes."""
    connection = await RedisConnection.open(engine.url)
    assert connection.server.name == "valkey"
    await connection.close()


@pytest.mark.parametrize(
    "name", ["with space", 'quo"te', "per%20cent", "hash#?", "dollar$HOME", "ünïcode", "back\\slash"]
)
async def test_any_name_of_a_data_directory_serves(tmp_path: Path, name: str) -> None:
    """Spaces, quotes and other odd characters in the path reach the server and the URL unharmed."""
    with Engine.start(tmp_path / name) as engine:
        connection = await RedisConnection.open(engine.url)
        assert await connection.execute("CONFIG", "GET", "dir") == [b"dir", os.fsencode(tmp_path / name)]
        await connection.close()
    assert (tmp_path / name / "appendonlydir").is_dir()


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    """A data directory too deep for a socket address has its socket elsewhere, private and found by all who join."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with Engine.start(deep) as engine:
        socket_path = Path(os.fsdecode(config_of(engine, "unixsocket")))
        assert len(os.fsencode(socket_path)) <= 103
        assert not socket_path.is_relative_to(deep)
        assert stat.S_IMODE(socket_path.parent.stat().st_mode) == 0o700
        joined = Engine.start(deep)
        assert (joined.started, joined.pid) == (False, engine.pid)
    with Engine.start(deep) as engine:
        assert engine.started
    socket_path.parent.rmdir()  # empty: the server has removed its socket


def test_a_second_start_joins(engine: Engine, data_dir: Path) -> None:
    """A second start on the same directory, however it is spelt, joins; only the first one's stop stops the server."""
    link = data_dir.parent / "link"
    link.symlink_to(data_dir)
    for path in (data_dir, link, data_dir / ".." / "data"):
        joined = Engine.start(path)
        assert (joined.started, joined.pid, joined.url) == (False, engine.pid, engine.url)
        with joined:
            assert ask(joined.url, "PING") == b"PONG"
        assert is_alive(engine.pid)
    engine.stop()
    assert not is_alive(engine.pid)


def test_it_joins_from_another_process(engine: Engine, data_dir: Path, processes: ProcessGroup) -> None:
    """Another process joins the running server and leaves it running at its exit."""
    process = processes.python(
        "import sys; from pathlib import Path; from agl_streams.engine import Engine\n"
        "engine = Engine.start(Path(sys.argv[1])); print('joined', engine.started, engine.pid)",
        str(data_dir),
    )
    assert process.wait() == 0, process.output
    assert f"joined False {engine.pid}" in process.output
    assert ask(engine.url, "PING") == b"PONG"


def test_joining_never_promises_less(engine: Engine, data_dir: Path) -> None:
    """A running server that is less durable, or not on the port that was asked for, is not joined silently."""
    with pytest.raises(EngineError, match="has appendfsync everysec, not always; stop it first"):
        Engine.start(data_dir, appendfsync="always")
    with pytest.raises(EngineError, match="listens on port 0, not"):
        Engine.start(data_dir, port=free_port())
    assert ask(engine.url, "PING") == b"PONG"


def test_joining_may_promise_more(data_dir: Path) -> None:
    """A more durable server serves one who asked for less, and the same port may be asked for again."""
    port = free_port()
    with Engine.start(data_dir, appendfsync="always", port=port) as engine:
        assert config_of(engine, "appendfsync") == b"always"
        assert Engine.start(data_dir, port=port).pid == engine.pid
        assert Engine.start(data_dir).pid == engine.pid
        assert ask(f"redis://127.0.0.1:{port}", "PING") == b"PONG"


def test_a_taken_port_is_told(data_dir: Path, tmp_path: Path) -> None:
    """A port that somebody listens on is an EngineError with the server's own words, and leaves nothing running."""
    port = free_port()
    with Engine.start(tmp_path / "other", port=port), pytest.raises(EngineError, match="Address already in use"):
        Engine.start(data_dir, port=port)
    assert not servers_in(data_dir)


def test_further_settings_reach_the_server(data_dir: Path) -> None:
    """Extra settings are lines of the server's configuration."""
    extra = {"maxmemory": "64mb", "client-output-buffer-limit": "normal 1mb 0 0"}
    with Engine.start(data_dir, extra=extra) as engine:
        assert config_of(engine, "maxmemory") == b"67108864"
        assert config_of(engine, "client-output-buffer-limit").startswith(b"normal 1048576 0 0")


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"appendonly": "no"}, "chooses appendonly"),
        ({"Dir": "/tmp", "PORT": "1"}, "chooses dir, port"),
        ({"maxmemory": "1\nport 6379"}, "line break"),
        ({"no-such-setting": "1"}, "no-such-setting"),
    ],
)
def test_a_bad_setting_is_told(data_dir: Path, extra: dict[str, str], told: str) -> None:
    """A setting that the engine decides, that would smuggle in another, or that is unknown, is an EngineError."""
    with pytest.raises(EngineError, match=told):
        Engine.start(data_dir, extra=extra)
    assert not servers_in(data_dir)


@pytest.mark.parametrize("binary", ALL_BINARIES)
def test_the_binary_can_be_chosen(data_dir: Path, binary: str) -> None:
    """A server binary is given by its path, and keeps the promises of the embedded one."""
    path = Path(find_binary(binary))
    with Engine.start(data_dir, binary=path) as engine:
        assert os.fsencode(path.name) in ask(engine.url, "INFO", "server").split(b"executable:")[1].splitlines()[0]
        assert config_of(engine, "appendonly") == b"yes"


def test_the_binary_can_be_named(data_dir: Path) -> None:
    """A server binary is found on PATH by its name."""
    find_binary("redis-7.0")
    with Engine.start(data_dir, binary="redis-server") as engine:
        assert b"redis_version:7.0" in ask(engine.url, "INFO", "server")


@pytest.mark.parametrize("binary", ["no-such-server", "/no/such/server", Path("/tmp")])
def test_a_missing_binary_is_told(data_dir: Path, binary: str | Path) -> None:
    """A binary that is not there, or no program, is an EngineError that names it."""
    with pytest.raises(EngineError, match=str(binary)):
        Engine.start(data_dir, binary=binary)


def test_a_binary_that_is_no_server_is_told(data_dir: Path) -> None:
    """A program that ends instead of serving is an EngineError with its status."""
    with pytest.raises(EngineError, match="ended with status 1"):
        Engine.start(data_dir, binary="false")


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    """A file where the data directory should be, or above it, is an EngineError that names an option."""
    (tmp_path / "file").write_text("not a directory")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(EngineError, match=r"--data-dir \(AGL_DATA_DIR\)"):
            Engine.start(path)


@pytest.mark.skipif(not RUNS_AS_ROOT, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(data_dir: Path) -> None:
    """A data directory that belongs to another user is refused, and nothing is written there."""
    data_dir.mkdir()
    os.chown(data_dir, NOBODY, NOBODY)
    with pytest.raises(EngineError, match=f"belongs to uid {NOBODY}"):
        Engine.start(data_dir)
    assert list(data_dir.iterdir()) == []


READ_ONLY = """
import os, sys
from pathlib import Path
from agl_streams.engine import Engine
from agl_streams.errors import EngineError
if os.geteuid() == 0:
    os.setuid(int(sys.argv[2]))
try:
    Engine.start(Path(sys.argv[1]))
except EngineError as error:
    print("told:", error)
"""


def test_a_directory_that_cannot_be_written_is_told(processes: ProcessGroup) -> None:
    """A data directory in a place that this user may not write is an EngineError with the reason."""
    process = processes.python(READ_ONLY, "/agl-no-such-place/data", str(NOBODY))
    assert process.wait() == 0, process.output
    assert "told: cannot use the data directory /agl-no-such-place/data: Permission denied" in process.output


def test_stopping_a_server_that_crashed_is_told(data_dir: Path) -> None:
    """Stop of a server that was killed meanwhile is an EngineError with its status, once."""
    engine = Engine.start(data_dir)
    os.kill(engine.pid, 9)
    with pytest.raises(EngineError, match="ended with status -9"):
        engine.stop()
    engine.stop()
    assert not servers_in(data_dir)


def test_a_fork_does_not_stop_it(engine: Engine) -> None:
    """A forked process that inherits the engine neither stops it nor keeps it alive."""
    with Raw(engine.url) as raw:
        context = multiprocessing.get_context("fork")
        child = context.Process(target=engine.stop)
        child.start()
        child.join()
        assert child.exitcode == 0
        assert raw.execute("PING") == b"PONG"


def servers_in(data_dir: Path) -> list[str]:
    """Command lines of servers and guardians that were started on a data directory."""
    listed = subprocess.run(["ps", "-ewwo", "pid,args"], check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if str(data_dir) in line and "ps -ewwo" not in line]


def test_stop_leaves_no_process(data_dir: Path) -> None:
    """After stop neither server nor guardian is left."""
    engine = Engine.start(data_dir)
    assert len(servers_in(data_dir)) >= 2
    engine.stop()
    until_blocking(lambda: not servers_in(data_dir), what="server and guardian to be gone")
