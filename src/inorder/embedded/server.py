"""One real server in one folder: ready when it answers its own protocol, restarted on the same data."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from inorder.embedded.folders import DataFolder, need_disk
from inorder.embedded.process import (
    GuardedProcess,
    ProcessSpec,
    ServerAccount,
    accepts_connections,
    free_port,
    is_free,
    need_port,
)
from inorder.model.errors import ConfigurationError, UnreachableError

_PORT_TRIES = 3
_POLL_SECONDS = 0.05
# A predecessor whose owner was killed has a grace of ten seconds to stop in.
_LOCK_SECONDS = 15
_LAST_LINES = 12


class Server(ABC):
    """A server as a context manager; `folder` keeps its data and its log, and outlives it.

    A subclass says how to write its settings (`configure`), how to make its data (`initialise`), what to run
    (`command`) and how to see that it answers (`responds`). Each may be called again after a crash of the
    server or of this process.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    disk_megabytes: ClassVar[int] = 300
    account: ServerAccount | None = None

    def __init__(self, folder: Path | str, *, port: int | None = None, start_seconds: float = 60) -> None:
        self.folder = Path(folder).absolute()
        self.start_seconds = start_seconds
        self._fixed_port = port
        self._port: int | None = None
        self._process: GuardedProcess | None = None
        self._data_folder = DataFolder(self.folder)
        self._given_up = threading.Event()

    def configure(self) -> None:  # noqa: B027  not every server has settings files
        """Write what `command` reads; called before every start, when the port is known."""

    def initialise(self) -> None:  # noqa: B027  not every server needs more than an empty folder
        """Fill the empty data folder; called once, and again only when it was interrupted."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments; it must stay in the foreground."""

    @abstractmethod
    def responds(self) -> bool:
        """True when the server answers a real request of its protocol; False while it does not yet."""

    def after_orderly_stop(self) -> None:  # noqa: B027  few servers leave something worth keeping
        """Called when the server has stopped by itself, not when it had to be killed."""

    @property
    @abstractmethod
    def url(self) -> str:
        """What a client is configured with."""

    @property
    def port(self) -> int:
        """The port it listens on; it stays the same over restarts."""
        if self._port is None:
            raise ConfigurationError(f"{self.title} has no port before its first start.", hint="Call start() first.")
        return self._port

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", self.port

    @property
    def data(self) -> Path:
        """Where the data are."""
        return self._data_folder.path

    @property
    def log_path(self) -> Path:
        """What the server prints, all starts one after the other."""
        return self.folder / f"{self.name}.log"

    @property
    def pids(self) -> tuple[int, ...]:
        """The server's process and its guardian's; empty when it is not running."""
        return (self._process.pid, self._process.guardian_pid) if self._process else ()

    def start(self) -> Self:
        """Start and return when it answers; a second start of a running server does nothing."""
        if self._process is not None:
            return self
        need_disk(self.folder, self.disk_megabytes, self.title)
        is_first = self._port is None
        for tries_left in reversed(range(_PORT_TRIES)):
            try:
                self._start_once()
            except UnreachableError:
                # Between choosing a port and listening on it another process may have taken it. Later on clients know
                # the port, and a server that came back on another one would leave them behind without a word.
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
                    env=os.environ,
                    lock=lock,
                    account=self.account,
                    stop_signal=self.stop_signal,
                )
            )
        finally:
            os.close(lock)  # from here on the guardian and the server hold it
        # Counted from here: a first start may have downloaded for minutes.
        self._await_ready(time.monotonic() + self.start_seconds)

    def _prepare(self) -> None:
        self.configure()
        if not self._data_folder.is_initialised:
            self._data_folder.discard()
            self._data_folder.make(self.account)
            self.initialise()
            self._data_folder.mark_initialised()

    def run_tool(self, argv: Sequence[str]) -> None:
        """Run a program to its end as the server's user, its words in the server's log."""
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
                timeout=self.start_seconds,
                check=False,
            )
        if done.returncode:
            raise self._failure("could not make its data folder")

    def _choose_port(self) -> None:
        wanted = self._fixed_port or self._port
        self._port = need_port(wanted, self.title) if wanted else free_port()

    def _lock_folder(self, deadline: float) -> int:
        """Every process of a server holds the lock, so once we have it a crashed predecessor is all gone."""
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
        assert process is not None  # noqa: S101  said for the type checker: set just before
        try:
            while not self._is_ready(process):
                if self._given_up.is_set():
                    raise UnreachableError(f"The start of {self.title} was given up.")
                if time.monotonic() > deadline:
                    raise self._failure(f"did not answer within {self.start_seconds:.0f} s")
        except BaseException:
            self.kill()
            raise

    def _is_ready(self, process: GuardedProcess) -> bool:
        is_answering = accepts_connections(self.port) and self.responds()
        # Looked at last: when another server took the port, it is that one that answers, and ours has ended.
        if process.wait(0 if is_answering else _POLL_SECONDS):
            raise self._failure("ended while starting")
        return is_answering

    def _failure(self, what: str) -> UnreachableError:
        lines = self.log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        said = "\n".join(f"  {line}" for line in lines)
        return UnreachableError(f"{self.title} {what}. Its last words:\n{said}\n", hint=f"All of them: {self.log_path}")

    def give_up_starting(self) -> None:
        """End a `start` that waits in another thread; this server is not started again."""
        self._given_up.set()

    def stop(self) -> None:
        """Stop in an orderly way, within the grace of the guardian; stopping twice does nothing."""
        if process := self._process:
            self._process = None
            if process.stop():
                self.after_orderly_stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would; the data stay for `start`."""
        if process := self._process:
            self._process = None
            process.kill()

    def restart(self) -> None:
        """Stop and start on the same data and the same port."""
        self.stop()
        self.start()

    def discard(self) -> None:
        """Stop, and remove the data; the log stays."""
        self.stop()
        self._data_folder.discard()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
