"""The rows of an outbox table in any layout, for those who only look at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from inorder import sql
from inorder.outbox import layouts
from inorder.outbox.missing_table import table_errors
from inorder.ports.outbox_store import OutboxRow
from inorder.ports.waiting_rows import IdRange
from inorder.stores.database import Database
from inorder.stores.opening import open_database

_STATEMENTS = sql.load("inorder.stores", "waiting_rows.sql")
_NAME = "inorder outbox reader"


@dataclass(frozen=True, slots=True)
class SqlWaitingRows:
    """A table behind a SQLAlchemy URL."""

    url: str
    table: str
    layout: str

    def extent(self) -> IdRange | None:
        """The lowest and the highest id."""
        with self._asked() as (database, layout):
            statement = _STATEMENTS.render("extent", table=self._quoted(layout), id=layout.id)
            [(first, last)] = database.execute(statement).rows
        return None if first is None else IdRange(first, last)

    def rows(self, ids: IdRange) -> Sequence[OutboxRow]:
        """The rows of a range in id order."""
        with self._asked() as (database, layout):
            statement = _STATEMENTS.render("rows", table=self._quoted(layout), id=layout.id, columns=layout.columns)
            found = database.execute(statement, ids._asdict()).rows
        return [layout.decode(row) for row in found]

    @contextmanager
    def _asked(self) -> Iterator[tuple[Database, layouts.Layout]]:
        with closing(open_database(self.url, _NAME)) as database, table_errors(self.table, self.layout):
            yield database, layouts.layout(self.layout, database.dialect)

    def _quoted(self, layout: layouts.Layout) -> str:
        return layouts.quoted_table(layout.dialect, self.table)
