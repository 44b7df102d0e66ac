"""One server of each kind for all workers of a test session.

The process that was started as `pytest` has the servers: it starts each when it is first asked for one, and stops all
when it ends. Workers of xdist ask it over a socket and get the port.

- Authoritative: the process that was started. It outlives every worker, so a worker that ends early or crashes takes
  no server away from the others; and when it is killed itself, the guardians stop the servers.
- A server object of a worker only knows where the server is. It cannot stop or kill it: a test that does so, or that
  changes settings of a whole server or counts what all its clients do, has a server of its own.
- A server that cannot start is an error of every test that asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from inorder.embedded import Cassandra, Kafka, MariaDB, Postgres, Redis
from inorder.embedded.folders import RunFolder
from inorder.embedded.server import Server

S = TypeVar("S", bound=Server)

# A start that fails does so for every test of the session, so that even a very busy machine gets its time.
_START_SECONDS = 180
# Without fsync, since no test pulls the plug of the machine.
KINDS: Mapping[type[Server], Mapping[str, Any]] = {
    Postgres: {"durable": False},
    Kafka: {},
    MariaDB: {},
    Redis: {},
    Cassandra: {},
}
_BY_NAME = {kind.name: kind for kind in KINDS}


class Servers(Protocol):
    """Where a test gets the session's servers."""

    def get(self, kind: type[S]) -> S:
        """The running server of this kind."""


@dataclass
class _Started:
    """One server, and what came of starting it."""

    server: Server | None = None
    error: Exception | None = None


class OwnServers:
    """The servers of this process; `serve` lends them to others."""

    def __init__(self) -> None:
        self._run: RunFolder | None = None
        self._listener: Listener | None = None
        self._guard = threading.Lock()
        self._locks = {kind.name: threading.Lock() for kind in KINDS}
        self._started: dict[str, _Started] = {}

    def get(self, kind: type[S]) -> S:
        """Starts it when it is asked for the first time; a start that failed is not tried again."""
        with self._locks[kind.name]:
            if kind.name not in self._started:
                self._started[kind.name] = self._start(kind)
        found = self._started[kind.name]
        if found.error is not None:
            raise found.error
        return cast("S", found.server)

    def _start(self, kind: type[Server]) -> _Started:
        server = kind(self.folder() / kind.name, start_seconds=_START_SECONDS, **KINDS[kind])
        try:
            server.start()
        except Exception as error:  # noqa: BLE001 - raised for each test that asks for the server
            return _Started(error=error)
        return _Started(server)

    def folder(self) -> Path:
        """Where data and logs are; what a killed session leaves, the next one removes."""
        with self._guard:
            if self._run is None:
                self._run = RunFolder.fresh()
            return self._run.path

    def serve(self) -> str:
        """The address under which workers reach this process."""
        with self._guard:
            if self._listener is None:
                self._listener = Listener(family="AF_UNIX", backlog=16)
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
            return str(self._listener.address)

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            try:
                server = self.get(_BY_NAME[connection.recv()])
                connection.send((str(server.folder), server.port))
            except Exception as error:  # noqa: BLE001 - told to the worker that asked
                connection.send(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Stops all servers at once and gives the folder back."""
        if self._listener is not None:
            self._listener.close()
        stopping = [threading.Thread(target=found.server.stop) for found in self._started.values() if found.server]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        if self._run is not None:
            self._run.close()


class LentServers:
    """The servers of the process at `address`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, kind: type[S]) -> S:
        """Asks for it and waits until it runs."""
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send(kind.name)
            answer = connection.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"{kind.title} is not there: {answer}")
        folder, port = answer
        server = kind(folder, **KINDS[kind])
        server._port = port  # as if it had been started here
        return server
