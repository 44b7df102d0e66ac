"""Whether an outbox table is there, with the columns of its layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inorder import sql
from inorder.model.errors import ConfigurationError
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


@contextmanager
def as_needed(table: str, layout: str, hint: str) -> Iterator[None]:
    """Names the table in the error of whoever looks at its columns."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Table {table!r} is not as layout {layout!r} needs it: {error.message}", hint=hint
        ) from error
