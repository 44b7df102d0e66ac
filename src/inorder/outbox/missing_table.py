"""An outbox table that is not there, or is of another layout, told as what it is.

Our statements are fixed, so when a database does not understand one, the table is not what the settings say. The error
of the driver is known by its code. It may be wrapped by SQLAlchemy or Django, and no driver is imported for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from inorder.model.errors import ConfigurationError

_SQLSTATES = frozenset({"42P01", "42703", "42804", "3F000"})
"""PostgreSQL: no such table, no such column, a column of another type, no such schema."""
_MYSQL_NUMBERS = frozenset({1146, 1054, 1049})
"""No such table, no such column, no such database."""


@contextmanager
def table_errors(table: str, layout: str) -> Iterator[None]:
    """Raises `ConfigurationError` for what shows that the table is missing or has other columns."""
    try:
        yield
    except Exception as error:
        if (cause := _cause(error)) is None:
            raise
        raise ConfigurationError(
            f"Nothing was written: {table!r} is not an outbox table of layout {layout!r}. {_words(cause)}",
            hint=(
                f"`inorder schema sql --layout {layout}` prints what makes it, `inorder schema install --layout "
                f"{layout}` runs it; or set relay.table and relay.layout to what is there. Then publish again."
            ),
        ) from error


def _cause(error: BaseException | None) -> BaseException | None:
    while error is not None:
        if _is_of_the_table(error):
            return error
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _is_of_the_table(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        # SQLite has one code for everything that is wrong with a statement.
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    if getattr(error, "sqlstate", None) in _SQLSTATES:
        return True
    is_mysql = type(error).__module__.startswith("pymysql")
    return is_mysql and bool(error.args) and error.args[0] in _MYSQL_NUMBERS


def _words(cause: BaseException) -> str:
    text = str(cause.args[-1]) if cause.args else type(cause).__name__
    return f"The database says: {text.strip().splitlines()[0]}."
