"""Whether an outbox table is there, with the columns of its layout."""

from __future__ import annotations

from inorder import sql
from inorder.outbox import layouts
from inorder.outbox.missing_table import table_errors
from inorder.stores.database import Database

_STATEMENTS = sql.load("inorder.stores", "outbox_table.sql")


def require_outbox_table(database: Database, table: str, layout: str) -> None:
    """Raises `ConfigurationError` that names the command which makes it."""
    columns = layouts.layout(layout, database.dialect).columns
    quoted = layouts.quoted_table(database.dialect, table)
    with table_errors(table, layout):
        database.execute(_STATEMENTS.render("look", table=quoted, columns=columns))
