"""Two PostgreSQL servers, a primary and its streaming standby, and an address that can move between servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from inorder.embedded import Postgres
from inorder.embedded.server import HOST
from tests.conftest import Eventually

CHUNK = 65_536

_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
CAUGHT_UP = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"


class StandbyPostgres(Postgres):
    """A copy of another server that follows it until it is promoted."""

    def __init__(self, folder: Path, primary: Postgres) -> None:
        super().__init__(folder, durable=False)
        self._primary = primary

    def initialise(self) -> None:
        source = f"host={HOST} port={self._primary.port} user=postgres"
        options = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        self.run_tool([str(self._programs / "pg_basebackup"), "--pgdata", str(self.data), "-d", source, *options])


@dataclass(frozen=True)
class Pair:
    """A primary and its standby; after a switchover they have changed roles."""

    primary: Postgres
    standby: StandbyPostgres
    eventually: Eventually

    def url(self, database: str) -> str:
        """Both hosts, the first primary first."""
        return self.primary.url_of(database).replace(
            f"{HOST}:{self.primary.port}", f"{HOST}:{self.primary.port},{HOST}:{self.standby.port}"
        )

    def make_read_only(self) -> None:
        """Refuses further writes to the primary, whose sessions live on, and waits until the standby has all of it."""
        ask(self.primary, "ALTER SYSTEM SET default_transaction_read_only = on")
        ask(self.primary, "SELECT pg_reload_conf()")
        self.eventually(lambda: ask(self.primary, "SHOW default_transaction_read_only") == "on")
        self.eventually(lambda: ask(self.primary, _OPEN) == 0)
        self.eventually(lambda: ask(self.primary, CAUGHT_UP) == 1)

    def promote(self) -> None:
        assert ask(self.standby, "SELECT pg_promote()")

    def restart_as_standby(self) -> None:
        """Starts the first primary, which must be stopped, as a standby of the second."""
        (self.primary.data / "standby.signal").touch()
        with (self.primary.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = 'host={HOST} port={self.standby.port} user=postgres'\n")
        self.primary.start()


@contextmanager
def run_pair(folder: Path, eventually: Eventually) -> Iterator[Pair]:
    """Starts both in their own folders."""
    with ExitStack() as stack:
        primary = stack.enter_context(Postgres(folder / "primary", durable=False))
        standby = stack.enter_context(StandbyPostgres(folder / "standby", primary))
        yield Pair(primary, standby, eventually)


def ask(server: Postgres, statement: str) -> Any:
    """The first value of the answer."""
    with psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute(statement)
        row = found.fetchone() if found.description else None
    return row[0] if row else None


class Address:
    """A TCP address that leads to a server, and later to another; connections that exist stay where they are."""

    def __init__(self, server: Postgres) -> None:
        self._port = server.port
        self._listener = socket.create_server((HOST, 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def url_of(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@{HOST}:{self._listener.getsockname()[1]}/{database}"

    def move(self, server: Postgres) -> None:
        self._port = server.port

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection((HOST, self._port))
                except OSError:
                    client.close()
                    continue
                self._sockets += client, server
                self._start(_pass_on, client, server)
                self._start(_pass_on, server, client)

    def _start(self, work: Any, *ends: socket.socket) -> None:
        thread = threading.Thread(target=work, args=ends, name="address")
        self._threads.append(thread)
        thread.start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
