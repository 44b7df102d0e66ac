"""Tables made before us, or by others, get the column they lack, once, and without disturbing anybody afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from inorder.database.mysql import connect as mysql_connect
from inorder.database.postgres import connect, install
from inorder.outbox.layouts import install_statements
from inorder.outbox.stores.table import OutboxBacklog, backlog
from inorder.relay.stores.ports import Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore
from tests.contract.conftest import DatabaseOf

Connection = psycopg.Connection[Any]

OLD_NATIVE = (
    "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic varchar(249) NOT NULL, key bytea,"
    " value bytea, headers text, partition integer, timestamp bigint, created_at timestamptz NOT NULL DEFAULT now())"
)
DEBEZIUMS = (
    "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,"
    " type varchar(255) NOT NULL, payload jsonb)"
)
EVENT = "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (%s, 'order', '1', 'Placed', '{}')"
MYSQL_ROWS = {
    "native": "(topic) VALUES ('t')",
    "debezium": "(id, aggregatetype, aggregateid, type) VALUES (UUID(), 'order', '1', 'Placed')",
}


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url, "test", autocommit=True) as connection:
        yield connection


def test_an_older_native_table_can_be_marked_after_the_install(connection: Connection, postgres_url: str) -> None:
    connection.execute(OLD_NATIVE)
    connection.execute("INSERT INTO outbox (topic, value) VALUES ('t', 'x')")
    install(connection, install_statements("native", "postgresql", "outbox"))
    store = PostgresOutboxStore(postgres_url, "outbox")
    assert [row.value for row in store.mark(uuid4(), 10).rows] == [b"x"]
    store.close()


def test_debeziums_table_gets_an_order_that_its_writers_need_not_know(
    connection: Connection, postgres_url: str
) -> None:
    ids = [uuid4() for _ in range(4)]
    connection.execute(DEBEZIUMS)
    connection.execute(EVENT, (ids[0],))
    install(connection, install_statements("debezium", "postgresql", "outbox"))
    for id in ids[1:]:
        connection.execute(EVENT, (id,))
    store = PostgresOutboxStore(postgres_url, "outbox", layout="debezium")
    rows = store.read(Scan(0), 10).rows
    assert [dict(row.headers)["id"] for row in rows] == [str(id).encode() for id in ids]
    assert [row.id for row in rows] == [1, 2, 3, 4]
    store.close()


@pytest.mark.parametrize(("layout", "column"), [("native", "leader_id"), ("debezium", "seq")])
def test_an_older_table_in_mariadb_gets_its_column_and_keeps_its_rows(
    mariadb_url: str, layout: str, column: str
) -> None:
    """With the name of the database before that of the table, and without."""
    database = mariadb_url.rpartition("/")[2].partition("?")[0]
    with closing(mysql_connect(mariadb_url, "test", autocommit=True)) as connection, connection.cursor() as cursor:
        for table in ("outbox", f"{database}.other"):
            first, *rest = install_statements(layout, "mysql", table)
            cursor.execute(first)
            cursor.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            cursor.execute(f"INSERT INTO {table} {MYSQL_ROWS[layout]}")
            for statement in rest + rest:
                cursor.execute(statement)
            cursor.execute(f"SELECT COUNT(*), COUNT({column}) FROM {table}")
            assert cursor.fetchone() == (1, 1 if layout == "debezium" else 0)


@pytest.mark.parametrize("layout", ["native", "goharvest", "debezium"])
def test_installing_again_waits_for_no_writer(connection: Connection, postgres_url: str, layout: str) -> None:
    """A relay installs whenever it starts; it must not stand behind a transaction that stays open."""
    statements = install_statements(layout, "postgresql", "outbox")
    install(connection, statements)
    with connect(postgres_url, "writer") as writer:
        writer.execute("LOCK TABLE outbox IN ROW EXCLUSIVE MODE")
        connection.execute("SET lock_timeout = '1s'")
        install(connection, statements)


def test_what_waits_is_counted_in_every_layout(
    connection: Connection, postgres_url: str, database_of: DatabaseOf
) -> None:
    database = database_of(postgres_url)
    for layout in ("native", "goharvest", "debezium"):
        install(connection, install_statements(layout, "postgresql", layout))
        assert backlog(database, layout, layout) == OutboxBacklog(0, None)
    connection.execute("INSERT INTO native (topic) VALUES ('t')")
    connection.execute(EVENT.replace("outbox", "debezium"), (uuid4(),))
    found = backlog(database, "native")
    assert found.rows == 1
    assert found.oldest is not None
    assert backlog(database, "debezium", "debezium") == OutboxBacklog(1, None)
