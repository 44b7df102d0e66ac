"""`Stack`: several servers that start and stop together, in one run folder; `Program`: a process beside them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType
from typing import Self

from inorder.embedded.cassandra import Cassandra
from inorder.embedded.folders import RunFolder
from inorder.embedded.kafka import Kafka
from inorder.embedded.mariadb import MariaDB
from inorder.embedded.postgres import Postgres
from inorder.embedded.redis import Redis
from inorder.embedded.server import GuardedProcess, ProcessSpec, Server, write_private
from inorder.model.errors import ConfigurationError, PermanentError

_KINDS: Mapping[str, type[Server]] = {kind.name: kind for kind in (Postgres, Kafka, MariaDB, Redis, Cassandra)}


class Stack:
    """Several servers as one context manager; each has a password of its own, kept in its folder.

    `folder` names a run folder to keep and reuse; without it each stack creates one. `ports` fixes the port of a
    server by its name; the others get free ones. `durable=False` switches off fsync in PostgreSQL, for tests;
    `postgres` holds further settings of PostgreSQL.

    ```python
    with Stack(("postgres", "kafka")) as stack:
        stack.addresses()  # {"postgres": "postgresql+psycopg://…", "kafka": "127.0.0.1:…"}
        stack.settings()  # {"kafka": {"bootstrap.servers": …, "sasl.password": …}, "database": {"url": …}}
    ```
    """

    def __init__(
        self,
        parts: Sequence[str] = ("postgres", "kafka"),
        folder: Path | str | None = None,
        *,
        ports: Mapping[str, int] | None = None,
        durable: bool = True,
        postgres: Mapping[str, str] | None = None,
    ) -> None:
        for part in (*parts, *(ports or ())):
            if part not in _KINDS:
                raise ConfigurationError(
                    f"There is no embedded server {part!r}.", hint=f"There are: {', '.join(_KINDS)}."
                )
        self._parts = tuple(dict.fromkeys(parts))
        self._wanted_folder = Path(folder) if folder is not None else None
        self._ports = dict(ports or {})
        self._durable = durable
        self._postgres = dict(postgres or {})
        self._run: RunFolder | None = None
        self.servers: dict[str, Server] = {}

    @property
    def folder(self) -> Path:
        """The run folder; it has one folder per server, with its log."""
        if self._run is None:
            raise ConfigurationError("The stack has no folder before it is started.", hint="Call start() first.")
        return self._run.path

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(pid for server in self.servers.values() for pid in server.pids)

    def addresses(self) -> dict[str, str]:
        """The URL or address of each server, by its name; URLs have the password."""
        return {name: server.url for name, server in self.servers.items()}

    def settings(self) -> dict[str, Mapping[str, str]]:
        """The sections of inorder.toml with which inorder connects to these servers."""
        return {name: section for server in self.servers.values() for name, section in server.settings().items()}

    def write_settings(self) -> Path:
        """Writes a settings file with these servers and their passwords into the folder, for its owner only."""
        lines = ["# Written by `inorder up`: servers on this machine, with their passwords.\n"]
        if mariadb := self.servers.get(MariaDB.name):
            lines.append(f"# MariaDB, to use instead of PostgreSQL: {mariadb.url}\n")
        file = self.folder / "servers.toml"
        write_private(file, "".join([*lines, settings_text(self.settings())]))
        return file

    def open_servers(self) -> list[str]:
        """Servers whose data were made without a password, by an earlier version."""
        return [server.title for server in self.servers.values() if server.password is None]

    def start(self) -> Self:
        """Starts all servers at once; if one cannot start, the others are stopped and its error is raised."""
        if self._run is not None:
            return self
        self._run = RunFolder.fresh() if self._wanted_folder is None else RunFolder.named(self._wanted_folder)
        self.servers = {part: self._server(part) for part in self._parts}
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def _server(self, part: str) -> Server:
        folder, port = self.folder / part, self._ports.get(part)
        if part == Postgres.name:
            return Postgres(folder, port=port, private=True, durable=self._durable, options=self._postgres)
        return _KINDS[part](folder, port=port, private=True)

    def _start_all(self) -> None:
        with ThreadPoolExecutor(len(self.servers) or 1, thread_name_prefix="embedded-start") as pool:
            try:
                for future in as_completed([pool.submit(server.start) for server in self.servers.values()]):
                    future.result()
            except BaseException:  # Ctrl-C too: do not wait for the others to become ready
                for server in self.servers.values():
                    server.cancel_start()
                raise

    def supervise(self, stop: threading.Event, report: Callable[[str], None]) -> None:
        """See `supervise`."""
        supervise(list(self.servers.values()), stop, report)

    def stop(self) -> None:
        """Stops all servers and releases the folder; a second call does nothing."""
        if run := self._run:
            self._run = None
            try:
                with ThreadPoolExecutor(len(self.servers) or 1, thread_name_prefix="embedded-stop") as pool:
                    futures = [pool.submit(server.stop) for server in self.servers.values()]
                for future in futures:
                    future.result()
            finally:
                run.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def settings_text(sections: Mapping[str, Mapping[str, str]]) -> str:
    """Sections of inorder.toml.

    >>> print(settings_text({"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "database": {"url": "sqlite://"}}), end="")
    [kafka]
    "bootstrap.servers" = "127.0.0.1:1"
    [database]
    "url" = "sqlite://"
    """
    # A quoted text of JSON is one of TOML.
    lines = [
        line
        for section, values in sections.items()
        for line in (f"[{section}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()))
    ]
    return "".join(f"{line}\n" for line in lines)


MOST_RESTARTS = 5
_LOOK_SECONDS = 0.5


def supervise(servers: Sequence[Server], stop: threading.Event, report: Callable[[str], None]) -> None:
    """Restarts servers that end by themselves, and reports it, until `stop` is set.

    A server that has ended more than `MOST_RESTARTS` times raises `UnreachableError`, with its last log lines.
    """
    restarts = Counter[str]()
    while not stop.wait(_LOOK_SECONDS):
        for server in servers:
            if not server.has_ended or stop.is_set():
                continue
            restarts[server.name] += 1
            if restarts[server.name] > MOST_RESTARTS:
                raise server.failure(f"ended {restarts[server.name]} times")
            report(f"{server.title} ended by itself and is started again; its log is {server.log_path}.")
            server.revive()
            report(f"{server.title} runs again.")


_LAST_LINES = 15


class Program:
    """A program in its own process; it ends with this process, however that ends."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path) -> None:
        self.name = name
        self.argv = argv
        self._folder = folder
        self._process: GuardedProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process id, while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def log_path(self) -> Path:
        """The output of all its runs."""
        return self._folder / f"{self.name}.log"

    def start(self) -> None:
        """Starts it, with its output appended to the log."""
        lock = os.open(self._folder / f"{self.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._process = GuardedProcess(
                ProcessSpec(
                    argv=self.argv,
                    cwd=self._folder,
                    log_path=self.log_path,
                    env=_environment(),
                    lock=lock,
                    grace_seconds=20.0,
                )
            )
        finally:
            os.close(lock)

    def kill(self) -> None:
        """Sends SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """Sends SIGSTOP: it does not notice the time that passes until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stops it in an orderly way; may be called twice."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def has_ended(self, seconds: float = 0) -> bool:
        """Waits up to `seconds` for it to end by itself; returns whether it has ended, or was never started."""
        return self._process is None or self._process.wait(seconds)

    def check(self) -> None:
        """Raises `PermanentError` if it ended by itself."""
        if self._process is not None and self._process.wait(0):
            raise self.early_end()

    def early_end(self) -> PermanentError:
        """The error of a program that ended by itself, with its last log lines."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return PermanentError(
            f"The {self.name} ended by itself. Last log lines:\n" + "\n".join(lines),
            hint=f"\nThe whole log: {self.log_path}.",
        )


class Service(Program):
    """An `inorder` command, or another module with an entry point."""

    def __init__(self, name: str, arguments: list[str], folder: Path, *, module: str = "inorder.cli") -> None:
        super().__init__(name, [sys.executable, "-m", module, *arguments], folder)


def _environment() -> Mapping[str, str]:
    """This process's environment without the user's settings, which are not meant for embedded servers."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("INORDER_")}
    kept = {name: os.environ[name] for name in ("INORDER_CACHE", "INORDER_IVY_SETTINGS") if name in os.environ}
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join(part for part in (source, keep.get("PYTHONPATH", "")) if part)
    return {**keep, **kept, "PYTHONPATH": path}
