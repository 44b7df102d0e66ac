"""A lease row in PostgreSQL; the database's clock alone tells when it runs out."""

from __future__ import annotations

from typing import Any

import psycopg

from inorder import sql
from inorder.stores.postgres.connect import Reconnecting
from inorder.stores.postgres.install import install
from inorder.stores.postgres.sqlstate import our_errors

_STATEMENTS = sql.load("inorder.stores.postgres", "lease.sql")
TABLE = sql.quoted("inorder_lease")
LEASE_SECONDS = 3.0


class PostgresLease:
    """A `Lease` that one instance holds for `LEASE_SECONDS` after each `acquire`."""

    def __init__(self, url: str, *, name: str, owner: str, seconds: float = LEASE_SECONDS) -> None:
        self._connecting = Reconnecting(url, "inorder relay (lease)")
        self._name = name
        self._owner = owner
        self._seconds = seconds
        self.term = 0

    def acquire(self) -> bool:
        """Wins or extends the lease in one statement; makes the table at the first call."""
        with our_errors():
            connection, is_new = self._connecting.get()
            if is_new:
                install(connection, [install_statement()])
            parameters = {"name": self._name, "owner": self._owner, "seconds": self._seconds}
            row = connection.execute(_STATEMENTS.render("acquire", lease=TABLE), parameters).fetchone()
            self.term = row[0] if row else 0
            return row is not None

    def release(self) -> None:
        """Frees the lease for whoever waits, and closes the connection."""
        with our_errors():
            if self.term:
                connection, _ = self._connecting.get()
                parameters = {"name": self._name, "owner": self._owner}
                connection.execute(_STATEMENTS.render("release", lease=TABLE), parameters)
            self._connecting.close()

    def arbitrates(self) -> bool:
        """Whoever waits may win it when it runs out."""
        return True


def install_statement() -> str:
    """The DDL of the lease table."""
    return _STATEMENTS.render("install", lease=TABLE)


def lease_of(connection: psycopg.Connection[Any], name: str) -> tuple[str | None, int]:
    """Who holds a lease that has not run out, and in which term; nobody where there was never one."""
    with our_errors():
        if connection.execute("SELECT to_regclass(%s)", (TABLE,)).fetchone() == (None,):
            return None, 0
        row = connection.execute(_STATEMENTS.render("status", lease=TABLE), {"name": name}).fetchone()
    return (row[0] if row[3] else None, row[1]) if row else (None, 0)
