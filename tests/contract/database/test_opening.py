"""A URL leads to the adapter of its dialect, and to no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from inorder.database.database import Database, dialect_of, open_database
from inorder.model.errors import ConfigurationError, UnreachableError


@pytest.mark.parametrize(
    ("url", "dialect"),
    [
        ("postgresql+psycopg://user@host/db", "postgres"),
        ("postgresql://user@host/db", "postgres"),
        ("mysql+pymysql://user@host/db", "mysql"),
        ("mariadb+pymysql://user@host/db", "mysql"),
        ("sqlite:///file.db", "sqlite"),
    ],
)
def test_a_url_names_its_dialect(url: str, dialect: str) -> None:
    assert dialect_of(url) == dialect
    assert open_database(url, "test").dialect == dialect


def test_an_unknown_dialect_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigurationError, match="'oracle'") as refused:
        open_database("oracle://user:secret@host/db", "test")
    assert all(name in refused.value.hint for name in ("postgresql", "mysql", "sqlite"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_sqlite_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="names no file"), open_database(url, "test").transaction():
        pass


def test_a_file_in_a_folder_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    missing = open_database(f"sqlite:///{tmp_path / 'nowhere' / 'test.db'}", "test")
    with pytest.raises(ConfigurationError, match="unable to open"), missing.transaction():
        pass


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_server_that_is_away_is_unreachable(scheme: str) -> None:
    away = open_database(f"{scheme}://user@127.0.0.1:1/db", "test")
    with pytest.raises(UnreachableError), away.transaction():
        pass


@pytest.fixture
def mariadb(mariadb_url: str) -> Database:
    return open_database(mariadb_url, "test of the name")


def test_mariadb_sessions_are_alike_whatever_the_server_is_set_to(mariadb: Database) -> None:
    with mariadb.transaction() as transaction:
        wanted = "SELECT @@tx_isolation, @@time_zone, @@character_set_client, @@innodb_lock_wait_timeout"
        assert transaction.execute(wanted).rows == [("READ-COMMITTED", "+00:00", "utf8mb4", 20)]
    mariadb.close()
