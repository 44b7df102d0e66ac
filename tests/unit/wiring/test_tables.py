"""From the settings of the job `upsert` to its tables, whatever the database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from inorder.operate.schema import schema_sql
from inorder.pipeline.checks import message_checks
from inorder.pipeline.job import table_mappings, upsert_work
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.stores.mysql_table import MySQLTableStore
from inorder.pipeline.stores.postgres_table import PostgresTableStore
from inorder.pipeline.stores.sqlite_table import SQLiteTableStore
from inorder.settings import Settings
from tests.operating import install_schema

TABLES: list[dict[str, Any]] = [
    {"topic": "orders", "table": "orders", "fields": {"total": "numeric", "placed": "timestamp"}, "mode": "insert"},
    {"topic": "seats", "table": "seats", "key": ["flight", "seat"], "key_type": ["bigint", "text"], "nulls": "write"},
]


@pytest.fixture(autouse=True)
def _in_an_empty_place(empty_place: None) -> None:
    """No file and no variable of ours."""


def loaded(url: str = "sqlite:///x.db") -> Settings:
    return Settings.load(pipeline={"tables": TABLES}, database={"url": url})


def test_each_table_is_a_pipeline_named_after_it() -> None:
    orders, seats = table_mappings(loaded())
    assert orders == TableMapping(
        "upsert:orders", "orders", "orders", fields=(("total", "numeric"), ("placed", "timestamp")), mode="insert"
    )
    assert (seats.pipeline, seats.key_columns) == ("upsert:seats", (("flight", "bigint"), ("seat", "text")))
    assert seats.nulls == "write"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql+psycopg://u@h/db", PostgresTableStore),
        ("mysql+pymysql://u@h/db", MySQLTableStore),
        ("mariadb+pymysql://u@h/db", MySQLTableStore),
        ("sqlite:///x.db", SQLiteTableStore),
    ],
)
def test_the_url_decides_which_stores_are_opened(url: str, kind: type) -> None:
    work = upsert_work(loaded(url))
    assert work.topics == ("orders", "seats")
    assert {type(target.stores()) for target in work.targets} == {kind}
    assert work == upsert_work(loaded(url))
    assert hash(work) == hash(upsert_work(loaded(url)))
    assert "secret" not in repr(upsert_work(loaded(url.replace("u@", "u:secret@"))))


@pytest.mark.parametrize("dialect", ["postgresql", "mysql", "sqlite"])
def test_the_ddl_of_all_tables_is_printed_in_each_dialect(dialect: str) -> None:
    text = schema_sql(loaded(), "table", dialect)
    letters = ("inorder_dead_letter", "inorder_dead_letter_action")
    made = ("inorder_pointer", *letters, "inorder_tombstone", "inorder_tombstone_mark")
    assert [text.count(f"EXISTS {name} ") for name in made] == [1, 1, 1, 1, 1]
    assert text.count("PRIMARY KEY") == 7
    assert "version_offset" in text
    assert "{" not in text


def test_the_tables_are_made_where_they_are_missing(tmp_path: Path) -> None:
    settings = loaded(f"sqlite:///{tmp_path / 'x.db'}")
    install_schema(settings, "table")
    install_schema(settings, "table")
    with sqlite3.connect(tmp_path / "x.db") as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert names >= {"orders", "seats", "inorder_pointer", "inorder_tombstone"}


def test_publishers_check_every_topic_that_feeds_a_table() -> None:
    checks = message_checks(loaded())
    assert set(checks) == {"orders", "seats"}
    refused = checks["orders"](b"1", b'{"id":1,"total":"much"}')
    assert refused is not None
    assert refused.code == "wrong-type"
    assert checks["seats"](b'[7,"12A"]', b'{"flight":7,"seat":"12A","enabled":null}') is None
