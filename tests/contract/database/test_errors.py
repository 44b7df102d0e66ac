"""What the databases refuse is one of our errors, by its number and never by its text."""

from __future__ import annotations

import importlib
import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pymysql
import pytest

from inorder.database import mysql as mysql_connect
from inorder.database import mysql as mysql_driver
from inorder.database import sqlite as sqlite_connect
from inorder.database.credentials import parse_url
from inorder.database.database import Database, open_database
from inorder.database.mysql import classify as mysql_classified
from inorder.database.postgres import classify as classify_postgres
from inorder.database.sqlite import classify as sqlite_classified
from inorder.model.errors import (
    AuthenticationError,
    ConfigurationError,
    InorderError,
    LockConflictError,
    ReadOnlyServerError,
    RejectedError,
    TransientError,
    UnreachableError,
)
from inorder.relay.reloading import check_admission
from inorder.settings import Settings
from tests.contract.conftest import DatabaseOf


def refused(database: Database, statement: str) -> InorderError:
    with pytest.raises(InorderError) as error, database.transaction() as transaction:
        transaction.execute(statement)
    assert error.value.__cause__ is not None
    return error.value


@pytest.fixture
def mariadb_database(mariadb_url: str, database_of: DatabaseOf) -> Database:
    database = database_of(mariadb_url)
    database.install(["CREATE TABLE things (id INT PRIMARY KEY, name VARCHAR(3) NOT NULL)"])
    return database


@pytest.mark.parametrize(
    ("statement", "family"),
    [
        ("INSERT INTO things VALUES (1, 'long')", RejectedError),
        ("INSERT INTO things VALUES (1, NULL)", RejectedError),
        ("INSERT INTO things VALUES (99999999999, 'x')", RejectedError),
        ("INSERT INTO things VALUES (1, 'x'), (1, 'y')", RejectedError),
        ("SELECT no_such FROM things", ConfigurationError),
        ("SELEC 1", ConfigurationError),
        ("KILL QUERY CONNECTION_ID()", TransientError),
        ("KILL CONNECTION_ID()", UnreachableError),
    ],
)
def test_mariadb_refusals_are_told_apart(
    mariadb_database: Database, statement: str, family: type[InorderError]
) -> None:
    assert type(refused(mariadb_database, statement)) is family


def test_a_lock_that_is_not_free_in_time_is_waited_for_again(
    mariadb_database: Database, mariadb_url: str, database_of: DatabaseOf
) -> None:
    with mariadb_database.transaction() as transaction:
        transaction.execute("INSERT INTO things VALUES (1, 'x')")
    with mariadb_database.transaction() as holding:
        holding.execute("SELECT * FROM things FOR UPDATE")
        error = refused(database_of(mariadb_url), "SELECT * FROM things FOR UPDATE NOWAIT")
    assert type(error) is LockConflictError


def test_a_user_or_a_database_that_is_not_there_is_a_wrong_setting(mariadb_url: str, database_of: DatabaseOf) -> None:
    unknown = parse_url(mariadb_url).set(username="nobody", password="geheim").render_as_string(hide_password=False)
    for wrong, kind, text in (
        (unknown, AuthenticationError, "authentication failed"),
        (mariadb_url.replace("?", "_not?"), ConfigurationError, "does not exist"),
    ):
        error = refused(database_of(wrong), "SELECT 1")
        assert type(error) is kind
        assert text in error.message
        assert "geheim" not in str(error)


def test_no_error_of_a_refused_row_shows_its_values_but_its_detail_has_them(
    postgres_url: str, mariadb_url: str, database_of: DatabaseOf
) -> None:
    statement = "INSERT INTO people (id, born) VALUES ({id}, {born})"
    for url, wrong in ((postgres_url, "'geheim'::text::integer"), (mariadb_url, "'geheim'")):
        database = database_of(url)
        database.execute("CREATE TABLE people (id varchar(9) PRIMARY KEY, born integer, CHECK (born > 0))")
        database.execute(statement.format(id="'geheim'", born=7))
        for id, born in (("'geheim'", "8"), ("'b'", wrong)):
            error = refused(database, statement.format(id=id, born=born))
            assert isinstance(error, RejectedError)
            assert "geheim" not in str(error) + error.message
            assert "geheim" in error.detail
    error = refused(database_of(postgres_url), statement.format(id="'geheim2'", born=-1))
    assert isinstance(error, RejectedError)
    assert ("geheim2" in error.message, "geheim2" in error.detail) == (False, True)


def test_a_refused_login_of_postgresql_is_no_outage(postgres_url: str, database_of: DatabaseOf) -> None:
    parsed = parse_url(postgres_url)
    for wrong, kind, text in (
        (parsed.set(username="nobody", password="geheim"), AuthenticationError, "authentication failed: role"),
        (parsed.set(database="not_there"), UnreachableError, "the database does not exist: database"),
    ):
        error = refused(database_of(wrong.render_as_string(hide_password=False)), "SELECT 1")
        assert type(error) is kind
        assert text in error.message
        assert "geheim" not in str(error)
        assert "server of database.url is running" not in error.hint


def test_a_relay_with_a_refused_login_does_not_start_even_if_it_would_not_lead(postgres_url: str) -> None:
    wrong = parse_url(postgres_url).set(username="nobody").render_as_string(hide_password=False)
    with pytest.raises(AuthenticationError, match="authentication failed"):
        check_admission(Settings.load(database={"url": wrong}, kafka={"bootstrap.servers": "127.0.0.1:1"}))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            'connection failed: FATAL:  password authentication failed for user "shop"',
            AuthenticationError,
        ),
        ('connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "shop"', AuthenticationError),
        ('FATAL:  SCRAM authentication failed for user "shop"', AuthenticationError),
        ("connection failed: fe_sendauth: no password supplied", AuthenticationError),
        ("SSL error: certificate verify failed", AuthenticationError),
        ('FATAL:  database "shop" does not exist', UnreachableError),
        ("connection failed: Connection refused", UnreachableError),
        ("FATAL:  the database system is starting up", UnreachableError),
        ("", UnreachableError),
    ],
)
def test_what_postgresql_says_to_a_connection_is_told_apart(text: str, kind: type[InorderError]) -> None:
    assert type(classify_postgres(psycopg.OperationalError(text))) is kind


def test_a_port_without_a_server_refuses_the_connection() -> None:
    for scheme in ("mysql+pymysql", "postgresql+psycopg"):
        error = refused(open_database(f"{scheme}://user@127.0.0.1:1/db", "test"), "SELECT 1")
        assert type(error) is UnreachableError
        assert "connection refused" in error.message.lower()


@pytest.mark.parametrize(
    ("error", "family"),
    [
        (pymysql.err.InterfaceError(0, ""), UnreachableError),
        (pymysql.err.InterfaceError("closed"), UnreachableError),
        (pymysql.err.OperationalError(2013, "Lost connection"), UnreachableError),
        (pymysql.err.OperationalError(1053, "Server shutdown in progress"), UnreachableError),
        (pymysql.err.OperationalError(1040, "Too many connections"), TransientError),
        (pymysql.err.OperationalError(1213, "Deadlock found"), LockConflictError),
        (pymysql.err.OperationalError(1290, "read-only"), ReadOnlyServerError),
        (pymysql.err.OperationalError(1153, "Got a packet bigger than"), RejectedError),
        (pymysql.err.OperationalError(1142, "command denied"), ConfigurationError),
        (pymysql.err.OperationalError(64999, "something new"), ConfigurationError),
    ],
)
def test_mysql_errors_are_ours_by_their_number(error: pymysql.MySQLError, family: type[InorderError]) -> None:
    assert type(mysql_classified(error)) is family


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A peer that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_peer_that_never_answers_is_given_up(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_connect, "ANSWER_TIMEOUT_SECONDS", 0.2)
    silent = open_database(f"mysql+pymysql://user@127.0.0.1:{silent_port}/db", "test")
    assert type(refused(silent, "SELECT 1")) is UnreachableError


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    monkeypatch.delitem(sys.modules, mysql_driver.__name__)
    with pytest.raises(ConfigurationError, match=r"inorder\[mysql\]"):
        importlib.import_module(mysql_driver.__name__)


@pytest.fixture
def file(sqlite_url: str, database_of: DatabaseOf) -> Database:
    database = database_of(sqlite_url)
    database.install(["CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT NOT NULL CHECK (length(name) < 4))"])
    return database


@pytest.mark.parametrize(
    ("statement", "family"),
    [
        ("INSERT INTO things VALUES (1, 'long')", RejectedError),
        ("INSERT INTO things VALUES (1, NULL)", RejectedError),
        ("INSERT INTO things VALUES ('x', 'x')", RejectedError),
        ("SELECT no_such FROM things", ConfigurationError),
        ("SELECT %(nobody)s", ConfigurationError),
    ],
)
def test_sqlite_refusals_are_told_apart(file: Database, statement: str, family: type[InorderError]) -> None:
    assert type(refused(file, statement)) is family


def test_a_file_that_another_process_writes_is_waited_for_again(
    file: Database, sqlite_url: str, database_of: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connect, "BUSY_TIMEOUT_SECONDS", 0.1)
    with file.transaction():
        error = refused(database_of(sqlite_url), "SELECT 1")
    assert type(error) is LockConflictError
    assert "SQLITE_BUSY" in error.message
    assert "timed out" in error.message


def test_a_file_can_be_read_while_it_is_written(file: Database, sqlite_url: str) -> None:
    with file.transaction() as transaction:
        transaction.execute("INSERT INTO things VALUES (1, 'x')")
        reader = sqlite_connect.connect(sqlite_url)
        assert reader.execute("SELECT count(*) FROM things").fetchone() == (0,)
        reader.close()


def test_a_file_that_is_no_database_is_a_wrong_setting(sqlite_url: str, database_of: DatabaseOf) -> None:
    Path(sqlite_url.removeprefix("sqlite:///")).write_text(
        "This is no database, it is a sentence of some length. " * 20
    )
    assert type(refused(database_of(sqlite_url), "SELECT 1")) is ConfigurationError


def test_sqlite_errors_of_the_driver_itself_are_for_people() -> None:
    closed = sqlite3.ProgrammingError("Cannot operate on a closed database.")
    assert type(sqlite_classified(closed)) is ConfigurationError
