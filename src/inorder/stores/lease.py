"""A lease row in the database; the database's clock alone tells when it runs out."""

from __future__ import annotations

from inorder.stores.database import Database, Dialect, Installed, statements_of

LEASE_SECONDS = 3.0


class SqlLease:
    """A `Lease` that one instance holds for `LEASE_SECONDS` after each `acquire`."""

    def __init__(self, database: Database, *, name: str, owner: str, seconds: float = LEASE_SECONDS) -> None:
        self._database = Installed(database, install_statements(database.dialect))
        self._statements = statements_of(database.dialect, "lease.sql")
        self._parameters = {"name": name, "owner": owner, "seconds": seconds}
        self.term = 0

    def acquire(self) -> bool:
        """Wins or extends the lease in one statement; makes the table at the first call."""
        won = self._database.execute(self._statements["acquire"], self._parameters)
        if "acquired" in self._statements:
            # Where a write cannot return what it wrote, whose the lease is now is asked afterwards.
            won = self._database.execute(self._statements["acquired"], self._parameters)
        self.term = won.rows[0][0] if won.rows else 0
        return bool(won.rows)

    def holds(self) -> bool:
        """As the last answer said; `KeptLease` knows for how long that is true."""
        return bool(self.term)

    def release(self) -> None:
        """Frees the lease for whoever waits, and closes the connection."""
        if self.term:
            self._database.execute(self._statements["release"], self._parameters)
            self.term = 0
        self._database.close()

    def arbitrates(self) -> bool:
        """Whoever waits may win it when it runs out."""
        return True


def install_statements(dialect: Dialect) -> list[str]:
    """The DDL of the lease table."""
    return statements_of(dialect, "lease.sql").starting_with("install")


def lease_of(database: Database, name: str) -> tuple[str | None, int]:
    """Who holds a lease that has not run out, and in which term; nobody where there was never one."""
    statements = statements_of(database.dialect, "lease.sql")
    if not database.execute(statements["exists"]).rows:
        return None, 0
    rows = database.execute(statements["status"], {"name": name}).rows
    return (rows[0][0], rows[0][1]) if rows else (None, 0)
