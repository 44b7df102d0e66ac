"""A stack starts its parts together, leaves no process behind, and refuses a folder that another one uses."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from inorder.embedded import Stack
from inorder.embedded.jars import fetch
from inorder.embedded.server import HOST, is_free
from inorder.model.errors import ConfigurationError, UnreachableError
from tests.conftest import Eventually

HOLD = """
import json, signal, sys
from inorder.embedded import Stack
# Tests that run under nohup, or in the background of a shell, inherit ignored signals.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
parts, folder = sys.argv[1].split(","), (sys.argv[2] if len(sys.argv) > 2 else None)
stack = Stack(parts, folder, durable=False)
try:
    with stack:
        print(json.dumps(stack.pids), stack.folder, *stack.addresses().values(), sep="|", flush=True)
        sys.stdin.read()
except KeyboardInterrupt:
    print("stopped in order", stack.pids, flush=True)
"""


class Holder:
    """Another process that holds a stack until it is stopped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line, "the stack did not start; its error is on stderr"
        pids, self.folder, *self.addresses = line.split("|")
        self.process = process
        self.pids = [int(pid) for pid in pids.strip("[]").split(",")]

    def are_gone(self) -> bool:
        return not any(is_running(pid) for pid in self.pids)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start_holder(parts: str, *folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, parts, *folder]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


@contextmanager
def held(parts: str, *folder: str) -> Iterator[Holder]:
    with start_holder(parts, *folder) as process:
        try:
            yield Holder(process)
        finally:
            process.kill()


def dsn(address: str) -> str:
    return address.replace("+psycopg", "")


@pytest.mark.full
def test_kafka_and_postgres_start_together_on_loopback() -> None:
    with Stack(("postgres", "kafka")) as stack:
        assert list(stack.addresses()) == ["postgres", "kafka"]
        assert stack.addresses()["kafka"].startswith("127.0.0.1:")
        with psycopg.connect(dsn(stack.addresses()["postgres"])) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_killed_parent_leaves_no_server_behind(eventually: Eventually) -> None:
    with held("postgres,kafka,redis") as holder:
        assert len(holder.pids) == 6
        assert all(is_running(pid) for pid in holder.pids)
        holder.process.send_signal(signal.SIGKILL)
        holder.process.wait(60)
        eventually(holder.are_gone)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_parent_ended_by_a_signal_leaves_no_server_behind(number: signal.Signals, eventually: Eventually) -> None:
    with held("redis") as holder:
        holder.process.send_signal(number)
        holder.process.wait(60)
        eventually(holder.are_gone)


@pytest.mark.full
def test_a_parent_that_ends_by_itself_has_stopped_its_servers() -> None:
    with held("postgres,redis") as holder:
        holder.process.communicate("", timeout=120)
        assert holder.process.returncode == 0
        assert holder.are_gone()


@pytest.mark.full
def test_ctrl_c_lets_the_parent_stop_its_servers_in_order() -> None:
    with held("postgres,redis") as holder:
        holder.process.send_signal(signal.SIGINT)
        said, _ = holder.process.communicate(timeout=120)
        assert said == "stopped in order ()\n"
        assert holder.are_gone()
    # A crash or a kill would have left the lock file in place.
    log = (Path(holder.folder) / "postgres" / "postgres.log").read_text()
    assert "received fast shutdown request" in log
    assert "database system is shut down" in log


def test_ctrl_c_while_starting_ends_the_start_and_the_servers(tmp_path: Path, eventually: Eventually) -> None:
    for name in ("broker", "cassandra"):
        fetch(name)  # a first download may take longer than anybody waits for a start
    with start_holder("kafka,cassandra", str(tmp_path)) as process:
        eventually((tmp_path / "cassandra" / "cassandra.log").exists)
        eventually((tmp_path / "kafka" / "kafka.log").exists)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    assert said == "stopped in order ()\n"
    assert is_unlocked(tmp_path / "kafka")
    assert is_unlocked(tmp_path / "cassandra")


def is_unlocked(server_folder: Path) -> bool:
    """Every process of a server holds its folder's lock."""
    with (server_folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_ctrl_c_reaches_no_server_directly() -> None:
    with held("redis") as holder:
        group = os.getpgid(holder.process.pid)
        assert all(os.getpgid(pid) != group and os.getsid(pid) != os.getsid(0) for pid in holder.pids)


@pytest.mark.full
def test_a_named_folder_is_reused_after_its_owner_was_killed(tmp_path: Path) -> None:
    with held("postgres", str(tmp_path)) as holder:
        with psycopg.connect(dsn(holder.addresses[0])) as connection:
            connection.execute("CREATE TABLE kept (id int)")
        holder.process.send_signal(signal.SIGKILL)
        holder.process.wait(60)
    # At once: the old server may still be stopping.
    with Stack(("postgres",), tmp_path) as stack:
        with psycopg.connect(dsn(stack.addresses()["postgres"])) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        server = stack.servers["postgres"]
    server.discard()


def test_a_folder_with_a_living_owner_is_refused(tmp_path: Path) -> None:
    with held("redis", str(tmp_path)) as holder:
        with pytest.raises(ConfigurationError, match=rf"{tmp_path} is in use.*{holder.process.pid}") as caught:
            Stack(("redis",), tmp_path).start()
        assert not holder.are_gone()
    assert caught.value.exit_code == 3


def test_a_busy_port_is_named_and_the_other_parts_are_stopped(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        stack = Stack(("redis", "postgres"), tmp_path, ports={"redis": port}, durable=False)
        with pytest.raises(UnreachableError, match=f"port {port} is already in use") as caught:
            stack.start()
    assert caught.value.exit_code == 4
    assert stack.pids == ()
    assert is_free(stack.servers["postgres"].port)
    stack.servers["postgres"].discard()


def test_without_java_kafka_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError, match="Java was not found") as caught:
        Stack(("kafka",), tmp_path / "run").start()
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)


def test_an_unknown_part_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="no embedded server 'kafak'") as caught:
        Stack(("kafak",))
    assert "postgres, kafka, mariadb, redis, cassandra" in caught.value.hint


def test_a_stack_has_no_folder_before_it_starts() -> None:
    with pytest.raises(ConfigurationError, match="no folder before it is started"):
        _ = Stack().folder


@pytest.mark.full
def test_a_stopped_stack_starts_again_in_its_named_folder(tmp_path: Path) -> None:
    stack = Stack(("redis",), tmp_path)
    for _ in range(2):
        with stack:
            assert stack.folder == tmp_path
            assert (tmp_path / "redis" / "redis.log").exists()
        stack.stop()
