"""Rows that version 0.1 set aside, in the table that it made, are still there for operators."""

from __future__ import annotations

import pytest

from inorder.database.database import Database
from inorder.relay.stores.exceeded import ExceededFilter, SqlExceededStore
from tests.contract.conftest import DatabaseOf
from tests.contract.exceeded_store.rows import exactly, exceeding, insert, make_table

# As that version had it.
OLDER_TABLE = """CREATE TABLE inorder_exceeded (
    outbox      text        NOT NULL,
    id          bigint      NOT NULL,
    topic       text        NOT NULL,
    key         bytea,
    value       bytea,
    headers     text,
    "partition" integer,
    "timestamp" bigint,
    created_at  timestamptz NOT NULL,
    attempts    integer     NOT NULL,
    code        text        NOT NULL,
    reason      text        NOT NULL,
    parks       boolean     NOT NULL,
    exceeded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (outbox, id)
)"""
OLDER_ROW = """INSERT INTO inorder_exceeded VALUES
('outbox', 1, 't', 'a', '\\xff', '[["h","x"]]', 3, 7, '2026-01-02 03:04:05.123456+00', 5, 'RECORD-001', 'big', true)"""


@pytest.fixture
def older(postgres_url: str, database_of: DatabaseOf) -> Database:
    database = database_of(postgres_url)
    database.install([OLDER_TABLE, OLDER_ROW])
    make_table(database)
    return database


def test_an_older_row_is_listed_and_parks_its_key(older: Database) -> None:
    store = SqlExceededStore(older, "outbox")
    (row,) = store.rows(ExceededFilter())
    assert (row.id, row.topic, row.value, row.original) == (1, "t", b"\xff", None)
    assert store.parked() == {("t", b"a"): (1,)}


def test_an_older_row_is_retried_as_it_was(older: Database) -> None:
    SqlExceededStore(older, "outbox").settle(ExceededFilter(), "retry", "limit raised")
    (row,) = exactly(older)
    assert row[:7] == (1, "t", b"a", b"\xff", '[["h","x"]]', 3, 7)
    assert row[7].isoformat() == "2026-01-02T03:04:05.123456+00:00"


def test_an_older_table_takes_rows_of_today(older: Database) -> None:
    make_table(older, "debezium", "events")
    columns = {"aggregatetype": "order", "aggregateid": "7", "type": "x", "payload": "null"}
    insert(older, table="events", id="6f9619ff-8b86-d011-b42d-00cf4fc964ff", **columns)
    store = SqlExceededStore(older, "events", "debezium")
    before = exactly(older, "debezium", "events")
    store.exceed(exceeding(1))
    assert [row.created_at for row in store.rows(ExceededFilter())] == [None]
    store.settle(ExceededFilter(), "retry", "")
    assert exactly(older, "debezium", "events") == before


def test_an_upgraded_table_is_left_alone_by_the_next_instance(older: Database) -> None:
    for _ in range(2):
        assert len(SqlExceededStore(older, "outbox").rows(ExceededFilter())) == 1
