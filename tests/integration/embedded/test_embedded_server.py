"""The life of one server: ready by protocol, failing with its last log lines, restarted on its data and port.

The server here is ten lines of Python, so that each way of going wrong can be had.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from inorder.embedded.server import HOST, GuardedProcess, ProcessSpec, Server, free_port, is_free
from inorder.model.errors import ConfigurationError, UnreachableError
from tests.conftest import Eventually

LISTEN = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"hello")
    connection.close()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + LISTEN
DIES = "import sys; print('cannot find my data'); sys.exit('giving up')"


def with_child(released: Path) -> str:
    """A server whose child outlives it until a file is there."""
    waiting = f"while [ ! -e {released} ]; do sleep 0.05; done"
    start = f"subprocess.Popen(['sh', '-c', {waiting!r}], start_new_session=True, close_fds=False)"
    return f"import subprocess; {start}{LISTEN}"


class Echo(Server):
    """A server that says hello."""

    name = "echo"
    title = "Echo"
    disk_megabytes = 1

    def __init__(self, folder: Path, program: str = LISTEN, port: int | None = None) -> None:
        super().__init__(folder, port=port, start_seconds=60)
        self.program = program
        self.initialised = 0

    def initialise(self) -> None:
        self.initialised += 1

    def command(self) -> Sequence[str]:
        return [sys.executable, "-c", self.program, str(self.port)]

    def responds(self) -> bool:
        with socket.create_connection(self.address, timeout=1) as connection:
            try:
                return connection.recv(5) == b"hello"
            except OSError:
                return False

    @property
    def url(self) -> str:
        return f"echo://{HOST}:{self.port}"


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_server_answers_inside_its_block_and_is_gone_after_it(tmp_path: Path) -> None:
    with Echo(tmp_path) as server:
        pids = server.pids
        assert server.responds()
        assert server.url == f"echo://127.0.0.1:{server.port}"
    assert server.pids == ()
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)
    assert is_free(server.port)


def test_a_server_is_stopped_when_its_block_raises(tmp_path: Path) -> None:
    pids: list[int] = []

    def use() -> None:
        with Echo(tmp_path) as server:
            pids.extend(server.pids)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        use()
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)


def test_starting_and_stopping_twice_is_once(tmp_path: Path) -> None:
    server = Echo(tmp_path).start()
    pids = server.pids
    assert server.start().pids == pids
    server.stop()
    server.stop()
    server.kill()


def test_restart_keeps_port_data_and_log(tmp_path: Path) -> None:
    with Echo(tmp_path) as server:
        port, pids = server.port, server.pids
        server.restart()
        assert server.port == port
        assert server.pids != pids
        assert server.initialised == 1
    assert server.log_path.read_text().count("listening") == 2


def test_kill_is_at_once_and_start_follows_on_the_same_port(tmp_path: Path) -> None:
    with Echo(tmp_path, STUBBORN) as server:
        port = server.port
        server.kill()
        assert is_free(port)
        assert server.start().port == port
        server.kill()


def test_an_interrupted_first_start_is_made_anew(tmp_path: Path) -> None:
    class Interrupted(Echo):
        def initialise(self) -> None:
            (self.data / "half").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted(tmp_path).start()
    with Echo(tmp_path) as server:
        assert server.initialised == 1
        assert not (server.data / "half").exists()


def test_a_server_that_dies_while_starting_shows_its_last_words_and_its_log(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="Echo ended while starting") as caught:
        Echo(tmp_path, DIES).start()
    assert "cannot find my data" in str(caught.value)
    assert "giving up" in str(caught.value)
    assert str(tmp_path / "echo.log") in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_server_that_never_answers_is_given_up_and_killed(tmp_path: Path) -> None:
    class Silent(Echo):
        def responds(self) -> bool:
            return False

    server = Silent(tmp_path)
    server.start_seconds = 0.5
    with pytest.raises(UnreachableError, match="timed out: no answer within 0 s"):
        server.start()
    assert server.pids == ()
    assert is_free(server.port)


def test_a_start_can_be_given_up_from_another_thread(tmp_path: Path) -> None:
    class Silent(Echo):
        def responds(self) -> bool:
            self.cancel_start()
            return False

    with pytest.raises(UnreachableError, match="start of Echo was cancelled"):
        Silent(tmp_path).start()


def test_a_fixed_port_is_used_and_a_busy_one_refused(tmp_path: Path) -> None:
    port = free_port()
    with Echo(tmp_path / "one", port=port) as server:
        assert server.port == port
        with pytest.raises(UnreachableError, match=f"Echo: port {port} is already in use") as caught:
            Echo(tmp_path / "two", port=port).start()
    assert caught.value.exit_code == 4


def test_a_port_lost_between_choice_and_start_is_chosen_again(tmp_path: Path) -> None:
    class Robbed(Echo):
        thief: socket.socket | None = None

        def initialise(self) -> None:
            self.thief = socket.create_server(self.address)

    server = Robbed(tmp_path)
    server.program = LISTEN
    with server:
        assert server.thief is not None
        assert server.port != server.thief.getsockname()[1]
        server.thief.close()


def test_a_server_that_comes_back_does_not_move_to_a_port_that_its_clients_do_not_know(tmp_path: Path) -> None:
    with Echo(tmp_path) as server:
        port = server.port
        server.kill()
        with (
            socket.create_server(server.address),
            pytest.raises(UnreachableError, match=f"Echo: port {port} is already in use"),
        ):
            server.start()
        assert server.start().port == port


def test_one_folder_runs_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inorder.embedded.server._LOCK_SECONDS", 0.2)
    with Echo(tmp_path), pytest.raises(ConfigurationError, match=f"Another Echo is running in {tmp_path}"):
        Echo(tmp_path).start()


def test_a_start_waits_until_the_last_child_of_its_predecessor_is_gone(tmp_path: Path) -> None:
    released = tmp_path / "released"
    with Echo(tmp_path, with_child(released)) as server:
        server.kill()
        server.program = LISTEN
        threading.Timer(1.0, released.touch).start()
        server.start()
        assert released.exists(), "the child holds the folder until then"


def test_a_server_has_no_port_before_its_first_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no port before its first start"):
        _ = Echo(tmp_path).port


def order(tmp_path: Path, program: str, grace_seconds: float = 10) -> ProcessSpec:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    return ProcessSpec(
        argv=[sys.executable, "-c", program, str(free_port())],
        cwd=tmp_path,
        log_path=tmp_path / "log",
        env=os.environ,
        lock=lock,
        grace_seconds=grace_seconds,
    )


def test_a_stubborn_server_is_killed_when_its_grace_is_over(tmp_path: Path, eventually: Eventually) -> None:
    stubborn = order(tmp_path, STUBBORN, grace_seconds=0.3)
    process = GuardedProcess(stubborn)
    eventually(lambda: "listening" in (tmp_path / "log").read_text())
    process.stop()
    os.close(stubborn.lock)
    assert is_gone(process.pid)


def test_a_guardian_asked_to_stop_by_a_signal_takes_its_server_along(tmp_path: Path) -> None:
    polite = order(tmp_path, LISTEN)
    process = GuardedProcess(polite)
    os.kill(process.guardian_pid, signal.SIGINT)  # a stray Ctrl-C is none of its business
    assert not process.wait(0.3)
    os.kill(process.guardian_pid, signal.SIGTERM)
    assert process.wait(60)
    process.stop()
    os.close(polite.lock)
    assert is_gone(process.pid)


def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    missing = order(tmp_path, "")
    broken = ProcessSpec(["/nowhere/serverd"], tmp_path, missing.log_path, missing.env, missing.lock)
    with pytest.raises(UnreachableError, match=r"/nowhere/serverd could not be started: .*No such file"):
        GuardedProcess(broken)
    os.close(missing.lock)


def test_a_killed_server_is_noticed_and_revived_and_its_folder_keeps_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "geheim")
    with Echo(tmp_path) as server:
        port, pid = server.port, server.pids[0]
        assert b"geheim" not in Path(f"/proc/{pid}/environ").read_bytes()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.has_ended)
        server.revive()
        assert not server.has_ended
        assert server.port == port
    with Echo(tmp_path) as server:
        assert server.port == port
