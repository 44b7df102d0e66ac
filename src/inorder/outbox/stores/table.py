"""Reading an outbox table in any layout: whether it exists, its backlog, and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from inorder.database import sql
from inorder.database.database import Database, open_database, written_at
from inorder.database.sql import quoted_table
from inorder.model.errors import ConfigurationError
from inorder.model.message import OutboxRow
from inorder.outbox import layouts
from inorder.outbox.layouts.rows import decode_rows
from inorder.outbox.outbox import table_errors

_STATEMENTS = sql.load("inorder.outbox", "sql/outbox_table.sql")


def require_outbox_table(database: Database, table: str, layout: str) -> None:
    """Raises `ConfigurationError` with the command that creates it, if the table or a column does not exist."""
    columns = layouts.layout(layout, database.dialect).columns
    quoted = quoted_table(database.dialect, table)
    with table_errors(table, layout):
        database.execute(_STATEMENTS.render("look", table=quoted, columns=columns))


@contextmanager
def as_needed(table: str, layout: str, hint: str) -> Iterator[None]:
    """Names the table in errors about its columns."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Table {table!r} does not match layout {layout!r}: {error.message}", hint=hint
        ) from error


_BACKLOG_STATEMENTS = sql.load("inorder.outbox", "sql/backlog.sql")


@dataclass(frozen=True, slots=True)
class OutboxBacklog:
    """Rows that are committed and not purged."""

    rows: int
    oldest: datetime | None
    """When the oldest was written, where the layout has a column for it."""


def backlog(database: Database, table: str, layout: str = "native") -> OutboxBacklog:
    """Counts the rows, which takes time on a large table."""
    found = layouts.layout(layout, database.dialect)
    quoted = quoted_table(database.dialect, table)
    statement = _BACKLOG_STATEMENTS.render("backlog", table=quoted, written_at=found.written_at)
    rows, oldest = database.execute(statement).rows[0]
    return OutboxBacklog(rows, written_at(oldest))


MOST_ROWS = 1_000
"""Rows of an outbox that are searched for the names of topics."""


def first_topics(database: Database, table: str, layout: str = "native", above: int = -1) -> list[str]:
    """The topics of the first `MOST_ROWS` rows above an id."""
    found = layouts.layout(layout, database.dialect)
    names = {"table": quoted_table(database.dialect, table), "id": found.id, "topic": found.topic}
    statement = _BACKLOG_STATEMENTS.render("topics", **names, most=str(MOST_ROWS))
    return sorted(str(topic) for (topic,) in database.execute(statement, {"above": above}).rows)


_WAITING_ROWS_STATEMENTS = sql.load("inorder.outbox", "sql/waiting_rows.sql")
_NAME = "inorder outbox reader"


@dataclass(frozen=True, slots=True)
class SqlWaitingRows:
    """`WaitingRows` of a table behind a SQLAlchemy URL."""

    url: str = field(repr=False)
    table: str
    layout: str

    def extent(self) -> IdRange | None:
        with self._open() as (database, layout):
            statement = _WAITING_ROWS_STATEMENTS.render("extent", table=self._quoted(layout), id=layout.id)
            [(first, last)] = database.execute(statement).rows
        return None if first is None else IdRange(first, last)

    def rows(self, ids: IdRange) -> Sequence[OutboxRow]:
        with self._open() as (database, layout):
            statement = _WAITING_ROWS_STATEMENTS.render(
                "rows", table=self._quoted(layout), id=layout.id, columns=layout.columns
            )
            found = database.execute(statement, ids._asdict()).rows
        return decode_rows(layout.decode, found)

    @contextmanager
    def _open(self) -> Iterator[tuple[Database, layouts.Layout]]:
        with closing(open_database(self.url, _NAME)) as database, table_errors(self.table, self.layout):
            yield database, layouts.layout(self.layout, database.dialect)

    def _quoted(self, layout: layouts.Layout) -> str:
        return quoted_table(layout.dialect, self.table)


class IdRange(NamedTuple):
    """Ids from the first to the last, both included."""

    first: int
    last: int


class WaitingRows(Protocol):
    """The rows of an outbox, read-only. It is pickled to Spark tasks and connects for each call."""

    def extent(self) -> IdRange | None:
        """The lowest and the highest id, or None where no row waits."""

    def rows(self, ids: IdRange) -> Sequence[OutboxRow]:
        """The rows of a range in id order, seen by one snapshot; a malformed one has a `flaw`."""
