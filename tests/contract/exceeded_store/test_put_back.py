"""A retried row is what it was, column by column, whatever the layout and whatever columns were added to the table."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from inorder.database.database import Database, UndecodableText
from inorder.relay.stores.exceeded import ExceededFilter, SqlExceededStore
from tests.contract.conftest import DatabaseOf
from tests.contract.exceeded_store.rows import exactly, exceeding, insert, make_table
from tests.selection import few

EVENT = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
TEXT = "O'Neill \\ \" % {x} %(y)s 日本 🎈"

NATIVE: dict[str, Any] = {
    "topic": "t",
    "key": bytes(range(256)),
    "value": b"",
    "headers": '[["h","x"]]',
    "partition": 3,
    "timestamp": 7,
}
GOHARVEST: dict[str, Any] = {
    "create_time": "2026-01-02 03:04:05.123456",
    "kafka_topic": "t",
    "kafka_key": TEXT,
    "kafka_value": TEXT,
    "kafka_header_keys": '["a", "b"]',
    "kafka_header_values": '["1", null]',
}
DEBEZIUM: dict[str, Any] = {
    "id": EVENT,
    "aggregatetype": "order",
    "aggregateid": TEXT,
    "type": "OrderCreated",
    "payload": '{"price": 1.10, "tags": ["x", null]}',
}
DEIMOS: dict[str, Any] = {
    "topic": "t",
    "key": bytes(range(256)),
    "message": b"\x00\xff",
    "partition_key": TEXT,
    "session_id": EVENT,
    "created_at": "2026-01-02 03:04:05.123456",
    "updated_at": "2026-01-02 03:04:06",
}
TRENDYOL: dict[str, Any] = {
    "topic": "t",
    "key": TEXT,
    "value": TEXT,
    "header": '{"h":"x"}',
    "created_by": "somebody",
    "created_date": "2026-01-02 03:04:05.123456",
}
ROWS = {"native": NATIVE, "goharvest": GOHARVEST, "debezium": DEBEZIUM, "deimos": DEIMOS, "trendyol": TRENDYOL}


def written(database: Database, layout_name: str, **changes: Any) -> SqlExceededStore:
    """A table of the layout with one row in it."""
    make_table(database, layout_name)
    columns = ROWS[layout_name] | changes
    if database.dialect == "postgres" and layout_name == "goharvest":
        columns |= {"kafka_header_keys": ["a", "b, {}"], "kafka_header_values": ["1", None]}
    insert(database, **columns)
    return SqlExceededStore(database, "outbox", layout_name)


@pytest.mark.parametrize("layout_name", list(ROWS))
def test_a_row_of_every_layout_comes_back_exactly_as_it_was(database: Database, layout_name: str) -> None:
    store = written(database, layout_name)
    before = exactly(database, layout_name)
    store.exceed(exceeding(1))
    assert exactly(database, layout_name) == []
    store.settle(ExceededFilter(), "retry", "")
    assert exactly(database, layout_name) == before


@pytest.mark.parametrize(
    ("layout_name", "shown"),
    [
        ("native", ("t", bytes(range(256)), b"", '[["h","x"]]')),
        ("goharvest", ("t", TEXT.encode(), TEXT.encode())),
        ("debezium", ("outbox.event.order", TEXT.encode())),
        ("trendyol", ("t", TEXT.encode(), TEXT.encode(), '[["h","x"]]')),
    ],
)
def test_people_see_what_would_have_been_sent(database: Database, layout_name: str, shown: tuple[Any, ...]) -> None:
    store = written(database, layout_name)
    store.exceed(exceeding(1))
    (row,) = store.rows(ExceededFilter(topic=shown[0], key=shown[1]))
    assert (row.topic, row.key, row.value, row.headers)[: len(shown)] == shown


def test_the_id_given_next_is_one_that_nobody_had(database: Database) -> None:
    store = written(database, "native")
    store.exceed(exceeding(1))
    store.settle(ExceededFilter(), "retry", "")
    insert(database, **NATIVE)
    assert [row[0] for row in exactly(database)] == [1, 2]


def test_a_mark_is_not_put_back_since_its_leader_would_take_the_row_for_one_in_hand(database: Database) -> None:
    store = written(database, "goharvest", leader_id=str(UUID(int=7)))
    store.exceed(exceeding(1))
    store.settle(ExceededFilter(), "retry", "")
    with database.transaction() as transaction:
        assert transaction.execute("SELECT id, leader_id FROM outbox").rows == [(1, None)]


STRANGE = {
    "postgres": (
        "ALTER TABLE outbox ALTER topic DROP NOT NULL,"
        ' ADD "a ""%%"" b" jsonb DEFAULT \'null\', ADD moment timestamptz DEFAULT \'infinity\','
        " ADD tiny real DEFAULT 0.1, ADD big numeric DEFAULT 1e30, ADD spans int4range[] DEFAULT '{\"[1,5)\"}',"
        " ADD j json DEFAULT '{\"b\": 1,  \"a\": 1.0}', ADD made text GENERATED ALWAYS AS (topic || '!') STORED"
    ),
    "mysql": (
        "ALTER TABLE outbox MODIFY topic VARCHAR(249) NULL,"
        " ADD `a \"%%\" ``b` JSON DEFAULT '{\"b\": 1}', ADD moment TIMESTAMP(3) NULL DEFAULT '2026-01-02 03:04:05.678',"
        " ADD span TIME(6) DEFAULT '-30:00:00.5', ADD big DECIMAL(30, 5) DEFAULT 123456789012345678901234.12345,"
        " ADD bits BIT(9) DEFAULT b'100000001', ADD kind ENUM('x', 'y') DEFAULT 'y', ADD far DOUBLE DEFAULT 0.1,"
        " ADD made VARCHAR(250) AS (CONCAT(topic, '!'))"
    ),
    "sqlite": 'ALTER TABLE outbox ADD "a ""%%"" b" DEFAULT 0.1',
}


def test_columns_that_people_added_come_back_too(database: Database) -> None:
    make_table(database)
    with database.transaction() as transaction:
        transaction.execute(STRANGE[database.dialect])
    insert(database, **NATIVE)
    before = printed(database)
    store = SqlExceededStore(database, "outbox")
    store.exceed(exceeding(1))
    store.settle(ExceededFilter(), "retry", "")
    assert printed(database) == before


def printed(database: Database) -> object:
    """PostgreSQL's drivers cannot hold all that it prints, so let it print."""
    if database.dialect != "postgres":
        return exactly(database)
    with database.transaction() as transaction:
        return transaction.execute("SELECT CAST(outbox AS text) FROM outbox").rows


def test_columns_that_were_dropped_meanwhile_are_left_out(database: Database) -> None:
    store = written(database, "native")
    store.exceed(exceeding(1))
    database.install(["ALTER TABLE outbox DROP COLUMN headers", "ALTER TABLE outbox ADD COLUMN note varchar(9)"])
    store.settle(ExceededFilter(), "retry", "")
    with database.transaction() as transaction:
        assert transaction.execute("SELECT id, topic, note FROM outbox").rows == [(1, "t", None)]


NULLABLE = {
    "postgres": "ALTER TABLE outbox ALTER COLUMN kafka_topic DROP NOT NULL",
    "mysql": "ALTER TABLE outbox MODIFY kafka_topic VARCHAR(249) NULL",
}


def test_a_row_without_a_topic_can_be_set_aside_and_put_back(database: Database) -> None:
    make_table(database, "goharvest")
    if database.dialect == "sqlite":
        database.install(["DROP TABLE outbox", "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, " + LOOSE])
    else:
        database.install([NULLABLE[database.dialect]])
    store = written(database, "goharvest", kafka_topic=None)
    before = exactly(database, "goharvest")
    store.exceed(exceeding(1))
    (row,) = store.rows(ExceededFilter())
    assert (row.topic, row.key) == ("", TEXT.encode())
    assert store.parked() == {("", TEXT.encode()): (1,)}
    store.settle(ExceededFilter(), "retry", "")
    assert exactly(database, "goharvest") == before


LOOSE = "create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values, leader_id)"


def test_text_that_is_no_text_is_kept_as_it_is(sqlite_url: str, database_of: DatabaseOf) -> None:
    database = database_of(sqlite_url)
    store = written(database, "goharvest", create_time="some day")
    with database.transaction() as transaction:
        transaction.execute("UPDATE outbox SET kafka_value = CAST(x'ff00fe' AS TEXT), kafka_header_keys = 1.5")
    before = exactly(database, "goharvest")
    assert UndecodableText(b"\xff\x00\xfe") in before[0]
    store.exceed(exceeding(1))
    (row,) = store.rows(ExceededFilter())
    assert (row.value, row.created_at) == (b"\xff\x00\xfe", None)
    store.settle(ExceededFilter(), "retry", "")
    assert exactly(database, "goharvest") == before
    with database.transaction() as transaction:
        assert transaction.execute("SELECT typeof(kafka_value), typeof(id) FROM outbox").rows == [("text", "integer")]


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
def test_times_that_the_driver_cannot_hold_do_not_stop_anybody(
    postgres_url: str, database_of: DatabaseOf, moment: str
) -> None:
    database = database_of(postgres_url)
    store = written(database, "goharvest", create_time=moment)
    before = printed(database)
    store.exceed(exceeding(1))
    (row,) = store.rows(ExceededFilter())
    assert row.created_at is None
    store.settle(ExceededFilter(), "retry", "")
    assert printed(database) == before


LARGE = 15_000_000
"""A packet of MariaDB holds 16 MB by default; the text of the whole row would be twice as large as the value."""
GROW = {
    "postgres native": f"""UPDATE outbox SET "value" = convert_to(repeat('x', {LARGE}), 'UTF8')""",
    "postgres trendyol": f"""UPDATE outbox SET "value" = repeat('x', {LARGE})""",
    "mariadb native": f"UPDATE outbox SET `value` = REPEAT('x', {LARGE})",
    "mariadb trendyol": f"UPDATE outbox SET `value` = REPEAT('x', {LARGE})",
}


@pytest.mark.parametrize("place", few(GROW, "mariadb native"))
def test_a_value_that_almost_fills_a_packet_is_set_aside_and_put_back(
    request: pytest.FixtureRequest, database_of: DatabaseOf, place: str
) -> None:
    name, layout_name = place.split()
    database = database_of(request.getfixturevalue(f"{name}_url"))
    make_table(database, layout_name)
    insert(database, **ROWS[layout_name])
    database.execute(GROW[place])
    before = exactly(database, layout_name)
    store = SqlExceededStore(database, "outbox", layout_name)
    store.exceed(exceeding(1))
    assert exactly(database, layout_name) == []
    [row] = store.rows(ExceededFilter())
    assert row.value == b"x" * LARGE
    store.settle(ExceededFilter(), "retry", "the topic accepts it now")
    assert exactly(database, layout_name) == before
