"""Two-phase commits with PostgreSQL's PREPARE TRANSACTION: what notifies cannot be prepared, the rest is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from inorder.database.postgres import PostgresConnection, connect
from inorder.embedded import Postgres
from inorder.model.message import Message
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.relay.stores.ports import Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore


@pytest.fixture(scope="module")
def url(servers_folder: Path) -> Iterator[str]:
    """A server that allows prepared transactions."""
    options = {"max_prepared_transactions": "4"}
    with Postgres(servers_folder / "prepared-postgres", durable=False, options=options) as server:
        yield server.create_database("prepared")


@pytest.fixture
def writer(url: str) -> Iterator[PostgresConnection]:
    with connect(url, "test", autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS outbox")
        for statement in install_statements("native", "postgres", "outbox"):
            connection.execute(statement)
        connection.autocommit = False
        yield connection


@pytest.fixture
def asleep(url: str, writer: PostgresConnection) -> Iterator[PostgresOutboxStore]:
    """The store of a relay that sleeps, so that publishers notify it."""
    with closing(PostgresOutboxStore(url, "outbox")) as store:
        assert writer.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert store.begin_sleep()
        yield store


def test_a_transaction_that_woke_the_relay_cannot_be_prepared(
    writer: PostgresConnection, asleep: PostgresOutboxStore
) -> None:
    Outbox().publish(writer, Message("t", key=1, value=b"a"))
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
        writer.execute("PREPARE TRANSACTION 'woke'")
    writer.rollback()
    assert asleep.read(Scan(0), 10).rows == []


def test_one_that_does_not_wake_is_prepared_held_to_be_open_and_read_once_it_commits(
    writer: PostgresConnection, asleep: PostgresOutboxStore
) -> None:
    writer.execute("SET LOCAL inorder.wake = 'off'")
    Outbox().publish(writer, Message("t", key=1, value=b"a"))
    writer.execute("PREPARE TRANSACTION 'quiet'")
    Outbox().publish(writer, Message("t", key=2, value=b"b"))
    writer.commit()
    assert asleep.wait(10), "the next transaction wakes it as before"
    assert [row.id for row in asleep.read(Scan(0), 10).rows] == [2]
    assert len(asleep.holders()) == 1, "the prepared transaction still has its id"
    writer.autocommit = True
    writer.execute("COMMIT PREPARED 'quiet'")
    assert asleep.holders() == frozenset()
    assert [row.id for row in asleep.read(Scan(0), 10).rows] == [1, 2]
