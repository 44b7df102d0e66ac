"""Pointers of a generation begin with its number, and those that are there stay."""

from __future__ import annotations

import pytest

from inorder.database.database import Database
from inorder.topics.generations import Generation
from inorder.topics.stores.generations import SqlPointers

ONE = Generation(1, "orders.g1", 3)
# The columns that the gate needs; the whole table is the table store's.
_TABLE = """
CREATE TABLE inorder_pointer (
    pipeline VARCHAR(200) NOT NULL, topic VARCHAR(200) NOT NULL, {partition} INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0, next_offset BIGINT NOT NULL,
    PRIMARY KEY (pipeline, topic, {partition})
)
"""


@pytest.fixture
def pointers(database: Database) -> SqlPointers:
    return SqlPointers(database)


def test_without_a_table_there_are_no_pointers(pointers: SqlPointers) -> None:
    assert pointers.of_topic("orders") == {}


def test_the_pointers_of_a_generation_are_begun_once(database: Database, pointers: SqlPointers) -> None:
    quote = "`" if database.dialect == "mysql" else '"'
    database.install([_TABLE.format(partition=f"{quote}partition{quote}")])
    pointers.begin("upsert:a", ONE)
    database.execute("UPDATE inorder_pointer SET next_offset = 7")
    pointers.begin("upsert:a", ONE)
    pointers.begin("upsert:b", ONE)
    assert pointers.of_topic("orders.g1") == {"upsert:a": {0: 7, 1: 7, 2: 7}, "upsert:b": {0: 0, 1: 0, 2: 0}}
    assert pointers.of_topic("orders") == {}
    found = database.execute("SELECT DISTINCT generation FROM inorder_pointer")
    assert found.rows == [(1,)]
