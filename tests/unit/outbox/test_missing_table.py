"""Errors of drivers that show a wrong table are told as such; all others stay what they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg
import pymysql
import pytest
import sqlalchemy

from inorder.model.errors import ConfigurationError
from inorder.outbox.outbox import table_errors


class WrappedError(Exception):
    """As Django and SQLAlchemy do it."""


def told(error: BaseException) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught, table_errors("outbox", "deimos"):
        raise error
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.UndefinedTable("no outbox"),
        psycopg.errors.UndefinedColumn("no key"),
        psycopg.errors.InvalidSchemaName("no schema"),
        pymysql.err.ProgrammingError(1146, "Table 'x.outbox' doesn't exist"),
        pymysql.err.OperationalError(1054, "Unknown column 'key'"),
    ],
)
def test_a_missing_table_or_column_names_table_layout_and_command(error: Exception) -> None:
    found = told(error)
    assert "'outbox' is not an outbox table of layout 'deimos'" in found.message
    assert str(error.args[-1]) in found.message
    assert "`inorder schema sql --layout deimos`" in found.hint
    assert found.__cause__ is error


@pytest.mark.parametrize("statement", ["INSERT INTO outbox (a) VALUES (1)", "INSERT INTO other (b) VALUES (1)"])
def test_sqlite_is_understood_with_and_without_sqlalchemy(statement: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE other (a int)")
        with (
            pytest.raises(ConfigurationError, match=r"no such table|no column named b"),
            table_errors("outbox", "native"),
        ):
            connection.execute(statement)
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as wrapped, pytest.raises(ConfigurationError), table_errors("outbox", "native"):
        wrapped.exec_driver_sql(statement)
    engine.dispose()


def test_a_wrapped_error_is_found() -> None:
    outer = WrappedError("wrapped")
    outer.__cause__ = psycopg.errors.UndefinedTable("no outbox")
    assert "no outbox" in told(outer).message


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.UniqueViolation("twice"),
        psycopg.OperationalError("gone"),
        pymysql.err.OperationalError(2006, "gone away"),
        sqlite3.IntegrityError("twice"),
        ValueError("no driver at all"),
        pymysql.err.Error(),
    ],
)
def test_other_errors_pass_untouched(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, table_errors("outbox", "native"):
        raise error
    assert caught.value is error
