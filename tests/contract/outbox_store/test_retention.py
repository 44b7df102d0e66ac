"""Published rows can be kept for some days, dropped by whole days, and published again in order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from inorder.database.postgres import connect
from inorder.model.errors import ConfigurationError, TransientError
from inorder.model.message import Message, OutboxRow
from inorder.outbox import Outbox
from inorder.outbox.layouts import install_statements
from inorder.outbox.stores.retention import Archive, Retention, replay
from inorder.relay.stores.ports import Scan
from inorder.relay.stores.postgres_outbox import PostgresOutboxStore

DAY = date(2026, 1, 31)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAYS = "SELECT relname FROM pg_class WHERE relname ~ '_published_[0-9]{8}$' AND relkind = 'r' ORDER BY relname"

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url, "test", autocommit=True) as connection:
        for statement in install_statements("native", "postgresql", "outbox"):
            connection.execute(statement)
        yield connection


@pytest.fixture
def store(connection: Connection, postgres_url: str) -> Iterator[PostgresOutboxStore]:
    store = PostgresOutboxStore(postgres_url, "outbox", archive=True)
    yield store
    store.close()


@pytest.fixture
def retention(connection: Connection, postgres_url: str) -> Iterator[Retention]:
    retention = Retention(postgres_url, "outbox", retention_days=2)
    yield retention
    retention.close()


def publish(connection: Connection, *values: str, topic: str = "t", key: str = "k") -> None:
    with connection.transaction():
        for value in values:
            Outbox().publish(connection, Message(topic, key=key, value=value, headers={"trace": value}))


def rows(store: PostgresOutboxStore) -> list[OutboxRow]:
    return store.read(Scan(0), 100).rows


def values(found: list[OutboxRow]) -> list[bytes | None]:
    return [row.value for row in found]


def days(connection: Connection) -> list[str]:
    return [name.removeprefix("outbox_published_") for (name,) in connection.execute(DAYS)]


def archived(connection: Connection) -> list[bytes]:
    return [value for (value,) in connection.execute("SELECT value FROM outbox_published ORDER BY id")]


def purge_all(store: PostgresOutboxStore) -> int:
    return store.purge([row.id for row in rows(store)])


def test_a_purged_row_is_kept_as_it_was(connection: Connection, store: PostgresOutboxStore) -> None:
    publish(connection, "a", "b")
    before = connection.execute("SELECT id, topic, key, value, headers, created_at FROM outbox ORDER BY id").fetchall()
    assert purge_all(store) == 2
    assert rows(store) == []
    kept = "SELECT id, topic, key, value, headers, created_at FROM outbox_published ORDER BY id"
    assert connection.execute(kept).fetchall() == before


def test_a_row_is_archived_once_however_often_it_is_purged(connection: Connection, store: PostgresOutboxStore) -> None:
    publish(connection, "a")
    ids = [row.id for row in rows(store)]
    assert [store.purge(ids), store.purge(ids), store.purge([])] == [1, 0, 0]
    assert archived(connection) == [b"a"]


def test_a_store_that_does_not_archive_just_deletes(connection: Connection, postgres_url: str) -> None:
    publish(connection, "a")
    store = PostgresOutboxStore(postgres_url, "outbox")
    assert purge_all(store) == 1
    store.close()
    assert connection.execute("SELECT to_regclass('outbox_published')").fetchone() == (None,)


def test_rows_of_other_layouts_cannot_be_kept(postgres_url: str) -> None:
    with pytest.raises(ConfigurationError, match="'goharvest' cannot be kept"):
        PostgresOutboxStore(postgres_url, "outbox", layout="goharvest", archive=True)


def whatever_is_there(connection: Connection, table: str = "outbox") -> dict[str, Any]:
    """What a purge of all rows binds."""
    found = connection.execute("SELECT pg_relation_filenode(to_regclass(%s))", [table]).fetchone()
    assert found is not None
    return {"ids": list(range(100)), "table": table, "incarnation": found[0]}


def test_today_and_tomorrow_are_made_ahead_as_the_days_go_by(connection: Connection) -> None:
    now = NOON
    archive = Archive("outbox", clock=lambda: now)
    for number in range(3):
        publish(connection, str(number))
        assert archive.move(connection, whatever_is_there(connection)) == 1
        now += timedelta(days=1)
    assert days(connection) == ["20260131", "20260201", "20260202", "20260203"]
    assert connection.execute("SELECT value FROM outbox_published_20260201").fetchall() == [(b"1",)]


def test_a_day_that_somebody_dropped_is_made_again(connection: Connection) -> None:
    archive = Archive("outbox", clock=lambda: NOON)
    for value in ("a", "b"):
        publish(connection, value)
        assert archive.move(connection, whatever_is_there(connection)) == 1
        connection.execute("DROP TABLE outbox_published_20260131")


def test_days_that_are_too_old_are_dropped_whole(connection: Connection, retention: Retention) -> None:
    for back in range(5):
        retention.prepare(DAY - timedelta(days=back))
    assert retention.keep(DAY) == ["outbox_published_20260127", "outbox_published_20260128"]
    assert days(connection) == ["20260129", "20260130", "20260131", "20260201"]
    assert retention.keep(DAY) == []


def test_tables_that_are_no_day_of_ours_are_left_alone(connection: Connection, retention: Retention) -> None:
    retention.prepare(DAY)
    connection.execute(
        "CREATE TABLE ours PARTITION OF outbox_published FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')"
    )
    connection.execute("CREATE TABLE outbox_published_20200101 (LIKE outbox)")
    assert retention.drop_before(DAY) == []


def test_two_instances_make_and_drop_days_at_once(connection: Connection, postgres_url: str) -> None:
    instances = [Retention(postgres_url, "outbox", retention_days=1) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for forward in range(4):
            list(pool.map(lambda one, day=DAY + timedelta(days=forward): one.keep(day), instances))
    for instance in instances:
        instance.close()
    assert days(connection) == ["20260202", "20260203", "20260204"]


def test_a_day_in_use_is_dropped_later(connection: Connection, retention: Retention, postgres_url: str) -> None:
    retention.prepare(DAY)
    with connect(postgres_url, "reader") as reader:
        reader.execute("SELECT * FROM outbox_published")
        with pytest.raises(TransientError):
            retention.drop_before(DAY + timedelta(days=1))
    assert retention.drop_before(DAY + timedelta(days=1)) == ["outbox_published_20260131"]


def test_a_table_in_a_schema_has_its_archive_there(connection: Connection, postgres_url: str) -> None:
    connection.execute("CREATE SCHEMA sales")
    for statement in install_statements("native", "postgresql", "sales.outbox"):
        connection.execute(statement)
    connection.execute("INSERT INTO sales.outbox (topic) VALUES ('t')")
    rows = whatever_is_there(connection, "sales.outbox")
    assert Archive("sales.outbox", clock=lambda: NOON).move(connection, rows) == 1
    retention = Retention(postgres_url, "sales.outbox", retention_days=0)
    assert retention.drop_before(DAY + timedelta(days=1)) == ["outbox_published_20260131"]
    retention.close()


def test_a_replay_puts_copies_in_order_behind_what_waits(
    connection: Connection, store: PostgresOutboxStore, postgres_url: str
) -> None:
    publish(connection, "a", "b", "c")
    before = rows(store)
    purge_all(store)
    publish(connection, "waiting")
    assert replay(postgres_url, "outbox") == 3
    found = rows(store)
    assert values(found) == [b"waiting", b"a", b"b", b"c"]
    assert [row._replace(id=0) for row in found[1:]] == [row._replace(id=0) for row in before], "headers and all"
    assert archived(connection) == [b"a", b"b", b"c"], "the archive keeps what it has"


def test_a_replay_takes_only_what_is_asked_for(
    connection: Connection, store: PostgresOutboxStore, postgres_url: str
) -> None:
    publish(connection, "1", topic="orders", key="x")
    publish(connection, "2", topic="orders", key="y")
    publish(connection, "3", topic="returns", key="x")
    purge_all(store)
    later = datetime.now(UTC) + timedelta(hours=1)
    earlier = datetime.now(UTC) - timedelta(hours=1)
    counts = [
        replay(postgres_url, "outbox", key=b"x", dry_run=True),
        replay(postgres_url, "outbox", topic="orders", dry_run=True),
        replay(postgres_url, "outbox", topic="orders", key=b"x", since=earlier, dry_run=True),
        replay(postgres_url, "outbox", since=later, dry_run=True),
    ]
    assert counts == [2, 2, 1, 0]
    assert rows(store) == [], "a dry run changes nothing"
    assert replay(postgres_url, "outbox", key=b"x") == 2
    assert values(rows(store)) == [b"1", b"3"]


def test_copies_of_a_replay_are_not_replayed_again(
    connection: Connection, store: PostgresOutboxStore, retention: Retention, postgres_url: str
) -> None:
    publish(connection, "a", "b")
    purge_all(store)
    for _ in range(3):
        assert replay(postgres_url, "outbox", dry_run=True) == 2
        assert replay(postgres_url, "outbox") == 2, "the copies of the time before are archived, too"
        purge_all(store)
    publish(connection, "c")
    purge_all(store)
    assert replay(postgres_url, "outbox") == 3
    purge_all(store)
    retention.drop_before(datetime.now(UTC).date() + timedelta(days=1))
    assert replay(postgres_url, "outbox") == 0
    assert connection.execute("SELECT count(*) FROM outbox_replayed").fetchone() == (0,), "nothing is noted for ever"


def test_a_replay_without_an_archive_finds_nothing(connection: Connection, postgres_url: str) -> None:
    assert replay(postgres_url, "outbox") == 0


def test_a_replay_wakes_a_sleeping_relay(connection: Connection, store: PostgresOutboxStore, postgres_url: str) -> None:
    publish(connection, "a")
    purge_all(store)
    assert store.begin_sleep()
    replay(postgres_url, "outbox")
    assert store.wait(60)
    store.end_sleep()
