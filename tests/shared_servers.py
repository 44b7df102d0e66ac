"""One server of each kind for all workers of a test session.

The main pytest process owns the servers: it starts each on the first request and stops all when it ends. Workers of
xdist request a server over a socket and get its port.

- Authority: the main process. It outlives every worker, so a worker that ends early or crashes stops no server of the
  others; when the main process is killed itself, the guardians stop the servers.
- A server object of a worker only knows the address of the server. It cannot stop or kill it: a test that does so, or
  that changes settings of a whole server or counts requests of all clients, starts its own server.
- A server that cannot start is an error of every test that requests it.
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

# A failed start fails every test of the session that needs the server, so even a very busy machine gets enough time.
_START_SECONDS = 180
# Without fsync, since no test simulates a power failure.
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
    """One server, or the error of its start."""

    server: Server | None = None
    error: Exception | None = None


class OwnServers:
    """The servers of this process; `serve` makes them available to workers."""

    def __init__(self) -> None:
        self._run: RunFolder | None = None
        self._listener: Listener | None = None
        self._guard = threading.Lock()
        self._locks = {kind.name: threading.Lock() for kind in KINDS}
        self._started: dict[str, _Started] = {}

    def get(self, kind: type[S]) -> S:
        """Starts it on the first request; a failed start is not retried."""
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
        except Exception as error:  # noqa: BLE001 - raised for each test that requests the server
            return _Started(error=error)
        return _Started(server)

    def folder(self) -> Path:
        """The folder of data and logs; the next session removes what a killed one leaves."""
        with self._guard:
            if self._run is None:
                self._run = RunFolder.fresh()
            return self._run.path

    def serve(self) -> str:
        """Listens for workers and returns the address."""
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
            except Exception as error:  # noqa: BLE001 - sent to the worker that requested it
                connection.send(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Stops all servers at once and removes the folder."""
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
        """Requests it and waits until it runs."""
        with Client(self._address, family="AF_UNIX") as connection:
            connection.send(kind.name)
            answer = connection.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"{kind.title} did not start: {answer}")
        folder, port = answer
        server = kind(folder, **KINDS[kind])
        server._port = port  # as if it had been started here
        return server
