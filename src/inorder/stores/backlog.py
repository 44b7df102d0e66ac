"""How much waits in an outbox table, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from inorder import sql
from inorder.outbox import layouts
from inorder.stores.database import Database
from inorder.stores.moment import written_at

_STATEMENTS = sql.load("inorder.stores", "backlog.sql")


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that are committed and not purged."""

    rows: int
    oldest: datetime | None
    """When the oldest was written, where the layout tells."""


def backlog(database: Database, table: str, layout: str = "native") -> Backlog:
    """Counts them; on a long table that takes a while."""
    found = layouts.layout(layout, database.dialect)
    quoted = layouts.quoted_table(database.dialect, table)
    statement = _STATEMENTS.render("backlog", table=quoted, written_at=found.written_at)
    rows, oldest = database.execute(statement).rows[0]
    return Backlog(rows, written_at(oldest))
