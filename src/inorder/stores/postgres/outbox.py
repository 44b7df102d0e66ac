"""The native outbox table in PostgreSQL, as the relay reads, purges and sleeps on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import psycopg

from inorder import sql
from inorder.model.headers import from_text
from inorder.ports.outbox_store import OutboxRow, Scan
from inorder.stores.postgres.connect import Reconnecting
from inorder.stores.postgres.sqlstate import our_errors

_STATEMENTS = sql.load("inorder.stores.postgres", "outbox.sql")


class PostgresOutboxStore:
    """An `OutboxStore` on two connections: one reads and listens, one purges."""

    def __init__(self, url: str, table: str) -> None:
        self._table = sql.quoted(table)
        self._reading = Reconnecting(url, "inorder relay (read)")
        self._purging = Reconnecting(url, "inorder relay (purge)")
        self._lock = 0
        self._channel = ""
        self._asleep = False

    def read(self, scan: Scan, limit: int) -> list[OutboxRow]:
        """Rows of the scan, in id order."""
        name = "read_with_probes" if scan.probes else "read"
        parameters = {"above": scan.above, "limit": limit, "probes": list(scan.probes)}
        with our_errors():
            found = self._reader().execute(self._render(name), parameters, binary=True)
            rows = [_row(row) for row in found]
        rows.sort(key=attrgetter("id"))
        return rows

    def holders(self) -> frozenset[str]:
        """Virtual transaction ids that hold the lock which every INSERT takes before it takes an id."""
        with our_errors():
            found = self._reader().execute(_STATEMENTS["holders"], {"table": self._table})
            return frozenset(row[0] for row in found)

    def purge(self, ids: Sequence[int]) -> int:
        """Deletes by id, in one statement that commits by itself."""
        if not ids:
            return 0
        with our_errors():
            connection, _ = self._purging.get()
            return connection.execute(self._render("purge"), {"ids": ids}, binary=True).rowcount

    def begin_sleep(self) -> bool:
        """Takes the lock that tells publishers to notify; fails while one that did not is about to commit."""
        with our_errors():
            reader = self._reader()
            row = reader.execute(_STATEMENTS["begin_sleep"], {"lock": self._lock}).fetchone()
            self._asleep = bool(row and row[0])
            return self._asleep

    def wait(self, seconds: float) -> None:
        """Waits for a notification; the driver keeps one that came during an earlier statement."""
        with our_errors():
            for _ in self._reader().notifies(timeout=seconds, stop_after=1):
                return

    def end_sleep(self) -> None:
        """Gives the lock back; with a broken connection it is gone already."""
        if not self._asleep:
            return
        self._asleep = False
        with our_errors():
            connection, is_new = self._reading.get()
            if not is_new:
                connection.execute(_STATEMENTS["end_sleep"], {"lock": self._lock})

    def close(self) -> None:
        """Closes both connections."""
        self._reading.close()
        self._purging.close()

    def _render(self, name: str) -> str:
        return _STATEMENTS.render(name, table=self._table)

    def _reader(self) -> psycopg.Connection[Any]:
        connection, is_new = self._reading.get()
        if is_new:
            self._listen(connection)
        return connection

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        row = connection.execute(_STATEMENTS["wake_up"], {"table": self._table}).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        self._lock, self._channel = row
        self._asleep = False
        connection.execute(f"LISTEN {sql.quoted(self._channel)}")


def _row(row: Sequence[Any]) -> OutboxRow:
    id, topic, key, value, headers, partition, timestamp = row
    return OutboxRow(id, topic, key, value, from_text(headers) if headers else (), partition, timestamp)


def waiting(connection: psycopg.Connection[Any], table: str) -> tuple[int, datetime | None]:
    """How many rows wait in the outbox, and since when the oldest of them does."""
    with our_errors():
        row = connection.execute(_STATEMENTS.render("status", table=sql.quoted(table))).fetchone()
    return (row[0], row[1]) if row else (0, None)
