"""Leadership `database`: leases and members as rows; only the database's clock decides when they expire."""

from __future__ import annotations

from inorder.database.database import Database, Dialect, InstallingDatabase, statements_of
from inorder.relay.leadership.share import MemberRank

LEASE_SECONDS = 3.0


class SqlLease:
    """A `Lease` that one instance holds for `LEASE_SECONDS` after each `acquire`."""

    def __init__(self, database: Database, *, name: str, owner: str, seconds: float = LEASE_SECONDS) -> None:
        self._database = InstallingDatabase(database, lease_tables(database.dialect))
        self._statements = statements_of("inorder.relay", database.dialect, "lease.sql")
        self._parameters = {"name": name, "owner": owner, "seconds": seconds}
        self.term = 0

    def acquire(self) -> bool:
        """Wins or extends the lease in one statement; creates the table at the first call."""
        won = self._database.execute(self._statements["acquire"], self._parameters)
        if "acquired" in self._statements:
            # Where a write cannot return what it wrote, the holder is read afterwards.
            won = self._database.execute(self._statements["acquired"], self._parameters)
        self.term = won.rows[0][0] if won.rows else 0
        return bool(won.rows)

    def holds(self) -> bool:
        """By the last answer; `KeptLease` knows for how long that is true."""
        return bool(self.term)

    def release(self) -> None:
        """Frees the lease and closes the connection."""
        if self.term:
            self._database.execute(self._statements["release"], self._parameters)
            self.term = 0
        self._database.close()

    def arbitrates(self) -> bool:
        """A waiting instance may win it when it expires."""
        return True


def lease_tables(dialect: Dialect) -> list[str]:
    """The DDL of the lease table."""
    return statements_of("inorder.relay", dialect, "lease.sql").starting_with("install")


def lease_of(database: Database, name: str) -> tuple[str | None, int]:
    """Who holds a lease that has not expired, and in which term; (None, 0) if there is none."""
    statements = statements_of("inorder.relay", database.dialect, "lease.sql")
    if not database.execute(statements["exists"]).rows:
        return None, 0
    rows = database.execute(statements["status"], {"name": name}).rows
    return (rows[0][0], rows[0][1]) if rows else (None, 0)


MEMBER_SECONDS = 3.0


class SqlMembership:
    """A `Membership` that lasts for `MEMBER_SECONDS` after each `beat`."""

    def __init__(self, database: Database, *, group: str, instance: str, seconds: float = MEMBER_SECONDS) -> None:
        self._database = InstallingDatabase(database, membership_tables(database.dialect))
        self._statements = statements_of("inorder.relay", database.dialect, "membership.sql")
        self._parameters = {"group": group, "instance": instance, "seconds": seconds}
        self._has_joined = False

    def beat(self) -> MemberRank:
        """Creates the table and deletes long expired members at the first call."""
        with self._database.transaction() as transaction:
            if not self._has_joined:
                transaction.execute(self._statements["forget"], self._parameters)
            transaction.execute(self._statements["beat"], self._parameters)
            members, rank = transaction.execute(self._statements["standing"], self._parameters).rows[0]
        self._has_joined = True
        return MemberRank(int(members), int(rank))

    def leave(self) -> None:
        """Removes the row, if there ever was one, and closes the connection."""
        if self._has_joined:
            with self._database.transaction() as transaction:
                transaction.execute(self._statements["leave"], self._parameters)
            self._has_joined = False
        self._database.close()


def membership_tables(dialect: Dialect) -> list[str]:
    """The DDL of the member table."""
    return statements_of("inorder.relay", dialect, "membership.sql").starting_with("install")


def members_of(database: Database, group: str) -> list[str]:
    """The instances of a group that are alive; none where the table is missing."""
    statements = statements_of("inorder.relay", database.dialect, "membership.sql")
    if not database.execute(statements["exists"]).rows:
        return []
    return [name for (name,) in database.execute(statements["alive"], {"group": group}).rows]
