"""`Server`: one real server in one folder; ready when it answers its own protocol, restarted on the same data.

A server runs under a guardian (`guardian.py`), which ends it when this process ends, however it ends. Every process of
a server holds the lock of its folder, so a start that gets the lock knows that a crashed predecessor has ended. Ports
are on the loopback address only; the file `port` of a folder has the last one, which the next start takes again if it
is free, so that addresses in a settings file stay valid.

A server gets the few variables that it needs and no others: the environment of a developer has passwords and tokens,
and a server shows its environment to everyone who may run functions in it.

The loopback address is that of every user of the machine. So a private server has a password, made with its data: the
file `password`, in a folder that only its owner can enter. The password is never an argument or a variable of a
process, which other users can list. Data that were made without one stay open, and so do those of our tests.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from inorder.embedded import guardian
from inorder.embedded.folders import DataFolder, ServerAccount, need_disk
from inorder.model.errors import ConfigurationError, UnreachableError

_PORT_TRIES = 3
_POLL_SECONDS = 0.05
# A predecessor whose owner was killed has a grace period of ten seconds.
_LOCK_SECONDS = 15
_LAST_LINES = 12


class Server(ABC):
    """A server as a context manager; `folder` has its data and its log, and outlives it.

    A subclass writes its settings (`configure`), creates its data (`initialise`), names the program (`command`) and
    checks that it answers (`responds`). Each may be called again after a crash of the server or of this process.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    disk_megabytes: ClassVar[int] = 300
    account: ServerAccount | None = None

    def __init__(
        self, folder: Path | str, *, port: int | None = None, start_seconds: float = 60, private: bool = False
    ) -> None:
        self.folder = Path(folder).absolute()
        self.start_seconds = start_seconds
        self._private = private
        self._fixed_port = port
        self._port: int | None = None
        self._process: GuardedProcess | None = None
        self._data_folder = DataFolder(self.folder)
        self._cancelled = threading.Event()

    def configure(self) -> None:  # noqa: B027  not every server has settings files
        """Writes settings files; called before every start, when the port is known."""

    def initialise(self) -> None:  # noqa: B027  not every server needs more than an empty folder
        """Fills the empty data folder; called once, and again only if it was interrupted."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments; it must stay in the foreground."""

    @abstractmethod
    def responds(self) -> bool:
        """Whether the server answers a request of its protocol."""

    def after_orderly_stop(self) -> None:  # noqa: B027  few servers leave something to keep
        """Called after an orderly stop, not after a kill."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL or address for clients."""

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """The sections of inorder.toml with which inorder connects; empty where another server is the usual one."""
        return {}

    @property
    def password(self) -> str | None:
        """The password of its data; None where every user of the machine may connect."""
        try:
            return self._password_file.read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    @property
    def _password_file(self) -> Path:
        return self.folder / "password"

    @property
    def port(self) -> int:
        """The port it listens on; it stays the same across restarts."""
        if self._port is None:
            raise ConfigurationError(f"{self.title} has no port before its first start.", hint="Call start() first.")
        return self._port

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def data(self) -> Path:
        return self._data_folder.path

    @property
    def log_path(self) -> Path:
        """The output of all runs of the server."""
        return self.folder / f"{self.name}.log"

    @property
    def pids(self) -> tuple[int, ...]:
        """The server's process and its guardian's; empty when it is not running."""
        return (self._process.pid, self._process.guardian_pid) if self._process else ()

    def start(self) -> Self:
        """Starts the server and returns when it answers; does nothing if it is running."""
        if self._process is not None:
            return self
        need_disk(self.folder, self.disk_megabytes, self.title)
        is_first = self._port is None
        for tries_left in reversed(range(_PORT_TRIES)):
            try:
                self._start_once()
            except UnreachableError:
                # Another process may take the port between our choice and the server's bind. After the first start
                # clients know the port, so it must not change.
                if not (is_first and tries_left and self._lost_its_port()):
                    raise
                self._port = None
            else:
                break
        return self

    def _lost_its_port(self) -> bool:
        return self._fixed_port is None and self._port is not None and not is_free(self._port)

    def _start_once(self) -> None:
        lock = self._lock_folder(time.monotonic() + _LOCK_SECONDS)
        try:
            self._choose_port()
            self._prepare()
            self._process = GuardedProcess(
                ProcessSpec(
                    argv=self.command(),
                    cwd=self.folder if self.account is None else Path("/"),
                    log_path=self.log_path,
                    env=server_environment(os.environ),
                    lock=lock,
                    account=self.account,
                    stop_signal=self.stop_signal,
                )
            )
        finally:
            os.close(lock)  # the guardian and the server hold it now
        # Counted from here: a first start may download for minutes.
        self._await_ready(time.monotonic() + self.start_seconds)
        self._last_port.write_text(str(self.port), encoding="ascii")

    def _prepare(self) -> None:
        is_new = not self._data_folder.is_initialised
        if is_new:
            self._data_folder.discard()
            self._password_file.unlink(missing_ok=True)
            if self._private:
                self.folder.chmod(0o700)
                write_private(self._password_file, secrets.token_urlsafe(24))
        self.configure()
        if is_new:
            self._data_folder.make(self.account)
            self.initialise()
            self._data_folder.mark_initialised()

    def run_tool(self, argv: Sequence[str]) -> None:
        """Runs a program to its end as the server's user, with its output in the server's log."""
        with self.log_path.open("ab") as log:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self.account.uid if self.account else None,
                group=self.account.gid if self.account else None,
                extra_groups=[] if self.account else None,
                env=server_environment(os.environ),
                timeout=self.start_seconds,
                check=False,
            )
        if done.returncode:
            raise self.failure("could not create its data folder")

    def _choose_port(self) -> None:
        wanted = self._fixed_port or self._port
        self._port = need_port(wanted, self.title) if wanted else self._usual_port() or free_port()

    @property
    def _last_port(self) -> Path:
        return self.folder / "port"

    def _usual_port(self) -> int | None:
        """The port of the last start in this folder, if it is free."""
        try:
            port = int(self._last_port.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return port if port in _RANGE and is_free(port) else None

    def _lock_folder(self, deadline: float) -> int:
        """Takes the lock of the folder, which every process of a running server holds."""
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        pause = threading.Event()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    pause.wait(_POLL_SECONDS)
                    continue
                os.close(lock)
                raise ConfigurationError(
                    f"Another {self.title} is running in {self.folder}.",
                    hint="Stop it, or use another folder.",
                ) from None
            return lock

    def _await_ready(self, deadline: float) -> None:
        process = self._process
        assert process is not None  # noqa: S101  for the type checker: set just before
        try:
            while not self._is_ready(process):
                if self._cancelled.is_set():
                    raise UnreachableError(f"The start of {self.title} was cancelled.")
                if time.monotonic() > deadline:
                    raise self.failure(f"timed out: no answer within {self.start_seconds:.0f} s")
        except BaseException:
            self.kill()
            raise

    def _is_ready(self, process: GuardedProcess) -> bool:
        is_answering = accepts_connections(self.port) and self.responds()
        # Checked last: if another server took the port, that one answers, and this one has ended.
        if process.wait(0 if is_answering else _POLL_SECONDS):
            raise self.failure("ended while starting")
        return is_answering

    def failure(self, what: str) -> UnreachableError:
        """The error of this server, with its last log lines."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        said = "\n".join(f"  {line}" for line in lines)
        return UnreachableError(
            f"{self.title} {what}. Last log lines:\n{said}\n", hint=f"The whole log: {self.log_path}"
        )

    def cancel_start(self) -> None:
        """Ends a `start` that waits in another thread; this server cannot be started again."""
        self._cancelled.set()

    def stop(self) -> None:
        """Stops in an orderly way, within the guardian's grace period; a second call does nothing."""
        if process := self._process:
            self._process = None
            if process.stop():
                self.after_orderly_stop()

    def kill(self) -> None:
        """Sends SIGKILL; the data stay for the next `start`."""
        if process := self._process:
            self._process = None
            process.kill()

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended by itself, or was killed from outside."""
        return self._process is not None and self._process.wait(0)

    def revive(self) -> None:
        """Starts a server that has ended again, on the same data and port."""
        self.kill()
        self.start()

    def restart(self) -> None:
        """Stops and starts on the same data and port."""
        self.stop()
        self.start()

    def discard(self) -> None:
        """Stops and removes the data; the log stays."""
        self.stop()
        self._data_folder.discard()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def write_private(file: Path, text: str) -> None:
    """Writes a file that only its owner can read, whatever was there."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


_NEEDED: Final = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "JAVA_HOME", "LD_LIBRARY_PATH"}
)


def server_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Those variables that a server needs.

    >>> server_environment({"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "s", "PGPASSWORD": "s"})
    {'PATH': '/bin', 'LC_ALL': 'C'}
    """
    return {name: value for name, value in variables.items() if name in _NEEDED or name.startswith("LC_")}


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What a guardian needs to run one server."""

    argv: Sequence[str]
    cwd: Path
    log_path: Path
    env: Mapping[str, str]
    lock: int
    account: ServerAccount | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0

    def as_json(self) -> str:
        """The argument of the guardian."""
        return json.dumps(
            {
                "argv": list(self.argv),
                "cwd": str(self.cwd),
                "uid": self.account.uid if self.account else None,
                "gid": self.account.gid if self.account else None,
                "lock": self.lock,
                "signal": int(self.stop_signal),
                "grace": self.grace_seconds,
            }
        )


class GuardedProcess:
    """A process under a guardian; it ends with this process, however that ends."""

    def __init__(self, spec: ProcessSpec) -> None:
        self._grace_seconds = spec.grace_seconds
        with spec.log_path.open("ab") as log:
            # By path and isolated: this folder has modules called redis and cassandra, which must not be on the
            # guardian's import path, and it starts in half the time.
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, spec.as_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(spec.env),
                pass_fds=[spec.lock],
                start_new_session=True,
            )
        self.pid = self._answer(spec)

    def _answer(self, spec: ProcessSpec) -> int:
        assert self._guardian.stdout is not None  # noqa: S101  for the type checker: it is a pipe
        line = self._guardian.stdout.readline().decode().strip()
        if line.isdigit():
            return int(line)
        self.stop()
        raise UnreachableError(f"{spec.argv[0]} could not be started: {line.removeprefix('error: ')}.")

    @property
    def guardian_pid(self) -> int:
        """The process id of the guardian."""
        return self._guardian.pid

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`; returns whether the server has ended."""
        try:
            self._guardian.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> bool:
        """Sends the stop signal, and SIGKILL after the grace period; returns whether the signal sufficed."""
        self._end(b"")
        return self._guardian.returncode != guardian.KILLED

    def kill(self) -> None:
        """Sends SIGKILL to the server, as a crash would."""
        self._end(b"kill\n")

    def _end(self, command: bytes) -> None:
        # A broken pipe means that the server, and its guardian with it, has already ended.
        if stdin := self._guardian.stdin:
            with suppress(BrokenPipeError), stdin:
                stdin.write(command)
        if stdout := self._guardian.stdout:
            stdout.close()
        self._guardian.wait(self._grace_seconds + 10)


HOST = "127.0.0.1"
# Below the ephemeral ports of Linux and macOS: a client that retries while its server restarts could otherwise be
# assigned that very port, connect to itself and keep the server from binding it.
_RANGE = range(15_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port; random, so that processes that choose at the same moment seldom collide."""
    for port in random.sample(_RANGE, 200):
        if is_free(port):
            return port
    raise UnreachableError(f"No free port was found between {_RANGE.start} and {_RANGE.stop} on {HOST}.")


def need_port(port: int, purpose: str) -> int:
    """Returns `port` if it is free; raises `UnreachableError` otherwise."""
    if not is_free(port):
        raise UnreachableError(
            f"{purpose}: port {port} is already in use.", hint="Stop the process that uses it, or choose another port."
        )
    return port


def accepts_connections(port: int) -> bool:
    """Whether something accepts connections on this port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def ask(port: int, request: bytes) -> bytes:
    """The first bytes of a server's response; empty if there is none.

    It shows that a server is ready without its driver installed.
    """
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(request)
            return connection.recv(64)
    except OSError:
        return b""
