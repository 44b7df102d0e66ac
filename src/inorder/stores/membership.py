"""Who takes part, as rows in a database; the database's clock alone tells who is still there."""

from __future__ import annotations

from inorder.ports.membership import Standing
from inorder.stores.database import Database, Dialect, Installed, statements_of

MEMBER_SECONDS = 3.0


class SqlMembership:
    """A `Membership` that is known for `MEMBER_SECONDS` after each `beat`."""

    def __init__(self, database: Database, *, group: str, instance: str, seconds: float = MEMBER_SECONDS) -> None:
        self._database = Installed(database, install_statements(database.dialect))
        self._statements = statements_of(database.dialect, "membership.sql")
        self._parameters = {"group": group, "instance": instance, "seconds": seconds}
        self._has_joined = False

    def beat(self) -> Standing:
        """Makes the table at the first call, and forgets who has been gone for long."""
        with self._database.transaction() as transaction:
            if not self._has_joined:
                transaction.execute(self._statements["forget"], self._parameters)
            transaction.execute(self._statements["beat"], self._parameters)
            members, rank = transaction.execute(self._statements["standing"], self._parameters).rows[0]
        self._has_joined = True
        return Standing(int(members), int(rank))

    def leave(self) -> None:
        """Removes the row, if there ever was one, and closes the connection."""
        if self._has_joined:
            with self._database.transaction() as transaction:
                transaction.execute(self._statements["leave"], self._parameters)
            self._has_joined = False
        self._database.close()


def install_statements(dialect: Dialect) -> list[str]:
    """The DDL of the member table."""
    return statements_of(dialect, "membership.sql").starting_with("install")
