"""Two PostgreSQL servers, a primary and its streaming standby, and an address that can move between servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from inorder.embedded import Postgres
from inorder.embedded.server import HOST
from tests.conftest import Eventually
from tests.injections import injects
from tests.network import Proxy

_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"
CAUGHT_UP = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_insert_lsn()"


class StandbyPostgres(Postgres):
    """A copy of another server that follows it until it is promoted."""

    def __init__(self, folder: Path, primary: Postgres, port: int | None = None) -> None:
        super().__init__(folder, port=port, durable=False)
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

    def stop_receiving(self) -> None:
        """From now on the standby misses what the primary commits; it has what was committed before."""
        end = ask(self.primary, "SELECT pg_current_wal_flush_lsn()::text")
        self.eventually(lambda: ask(self.standby, f"SELECT pg_last_wal_receive_lsn() >= '{end}'"))
        ask(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        ask(self.standby, "SELECT pg_reload_conf()")
        self.eventually(lambda: ask(self.standby, "SELECT count(*) FROM pg_stat_wal_receiver") == 0)

    @injects("replica promoted")
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


class Address(Proxy):
    """A TCP address that leads to a server, and later to another; connections that exist stay where they are."""

    def __init__(self, server: Postgres) -> None:
        super().__init__((HOST, server.port))

    def url_of(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@{self.address}/{database}"

    def move(self, server: Postgres, *, ends: bool = False) -> None:
        """Leads new connections to a server; with `ends`, ends those that exist."""
        with self._lock:
            self.target = HOST, server.port
            if ends:
                self.end_connections()
