"""Tables of goharvest and Debezium are taken over as they are; what others wrote wrongly is set aside, alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

import pytest

import inorder
from inorder.kafka.readers import ReadRecord, read_back
from tests.conftest import Eventually
from tests.integration.relay.conftest import Bench
from tests.operating import exceeded_rows, install_schema, settle_exceeded

STASH = """
    INSERT INTO {table} (create_time, kafka_topic, kafka_key, kafka_value, kafka_header_keys, kafka_header_values)
    VALUES (now(), %s, %s, %s, %s, %s)
"""
"""What goharvest's stasher executes."""

EVENT = "INSERT INTO {table} (id, aggregatetype, aggregateid, type, payload) VALUES (%s, %s, %s, 'Changed', %s)"
"""What users of Debezium's outbox do."""

POLLED = 'INSERT INTO {table} (topic, "key", "value", header, created_by) VALUES (%s, %s, %s, %s, %s)'
"""What users of PollingOutboxPublisher do."""

NATIVE = 'INSERT INTO {table} (topic, "key", "value", headers) VALUES (%s, %s, %s, %s)'

EVENTS = UUID(int=7)
TOPIC = "the topic of the test"


def event_id(number: int) -> UUID:
    return uuid5(EVENTS, str(number))


@dataclass(frozen=True)
class Table:
    """An outbox of some layout that others write to."""

    bench: Bench
    layout: str
    settings: inorder.Settings

    def execute(self, statement: str, *rows: tuple[object, ...]) -> None:
        with closing(self.bench.connect()) as connection, connection.transaction():
            for row in rows or ((),):
                connection.execute(statement.format(table=self.settings.relay.table), row)

    def count(self) -> int:
        with self.bench.connect() as connection:
            row = connection.execute(f"SELECT count(*) FROM {self.settings.relay.table}").fetchone()
        return int(str(row[0])) if row else 0

    def records(self, topic: str) -> list[ReadRecord]:
        return list(read_back(self.bench.properties, topic))

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records(topic)]


@pytest.fixture
def table_of(bench: Bench) -> Callable[..., Table]:
    def make(layout: str, **relay: Any) -> Table:
        settings = bench.settings(layout=layout, table=f"{layout}_events", leadership="none", **relay)
        install_schema(settings, layout)
        return Table(bench, layout, settings)

    return make


TableOf = Callable[..., Table]


@pytest.mark.parametrize("strategy", ["drain", "mark-purge"])
def test_what_goharvests_stasher_wrote_arrives_as_goharvest_would_send_it(
    table_of: TableOf, unique: str, eventually: Eventually, strategy: str
) -> None:
    table = table_of("goharvest", strategy=strategy)
    table.execute(
        STASH,
        (unique, "k", "first", ["trace", "empty"], ["ä", ""]),
        (unique, "k", None, [], []),
        (unique, "", "no key to speak of", ["twice", "twice"], ["1", "2"]),
    )
    with inorder.Relay(table.settings):
        eventually(lambda: table.count() == 0)
        table.execute(STASH, *((unique, "k", str(number), [], []) for number in range(100)))
        eventually(lambda: table.count() == 0)
    first, tombstone, *rest = [record for record in table.records(unique) if record.key == b"k"]
    assert (first.value, first.headers) == (b"first", (("trace", "ä".encode()), ("empty", b"")))
    assert (tombstone.value, tombstone.headers) == (None, ())
    assert [record.value for record in rest] == [str(number).encode() for number in range(100)]
    (other,) = [record for record in table.records(unique) if record.key != b"k"]
    assert (other.key, other.headers) == (b"", (("twice", b"1"), ("twice", b"2")))


def test_events_of_the_polling_publisher_arrive_as_it_would_send_them(
    table_of: TableOf, unique: str, eventually: Eventually
) -> None:
    table = table_of("trendyol")
    table.execute(
        POLLED,
        (unique, "k", "first", '{"trace": "ä", "n": 1}', "somebody"),
        (unique, None, "no key", None, None),
        *((unique, "k", str(number), "", None) for number in range(50)),
    )
    with inorder.Relay(table.settings):
        eventually(lambda: table.count() == 0)
    first, *rest = [record for record in table.records(unique) if record.key == b"k"]
    assert (first.value, first.headers) == (b"first", (("trace", "ä".encode()), ("n", b"1")))
    assert [(record.value, record.headers) for record in rest] == [(str(number).encode(), ()) for number in range(50)]
    assert [record.value for record in table.records(unique) if record.key is None] == [b"no key"]


def test_events_for_debezium_arrive_as_its_event_router_would_send_them(
    table_of: TableOf, unique: str, eventually: Eventually
) -> None:
    table = table_of("debezium")
    table.execute(
        EVENT,
        (event_id(0), unique, "17", '{"b": 1, "a": [null, "ä"]}'),
        (event_id(1), unique, "17", None),
        *((event_id(number), unique, "17", str(number)) for number in range(2, 50)),
    )
    with inorder.Relay(table.settings):
        eventually(lambda: table.count() == 0)
    found = table.records(f"outbox.event.{unique}")
    # The database prints jsonb in its own order: shorter names first, then by the alphabet.
    assert found[0].value == '{"a": [null, "ä"], "b": 1}'.encode()
    assert [record.value for record in found[1:]] == [None, *(str(number).encode() for number in range(2, 50))]
    assert {record.key for record in found} == {b"17"}
    assert [record.headers for record in found] == [
        (("id", str(event_id(number)).encode()),) for number in range(len(found))
    ]


@dataclass(frozen=True)
class Mishap:
    """A row that is wrong, what is said about it, and how a person mends what was set aside."""

    layout: str
    loosened: str
    """A column that must take nulls, as in a table that somebody made without care."""
    insert: str
    bad: tuple[object, ...]
    good: Callable[[str, int], tuple[object, ...]]
    reason: str
    mended: tuple[str, str | None]
    value: bytes


MISHAPS = {
    "goharvest, headers of unequal length": Mishap(
        "goharvest",
        "leader_id",
        STASH,
        (TOPIC, "bad", '"0"', ["a", "b"], ["1"]),
        lambda topic, number: (topic, "bad", f'"{number}"', [], []),
        "kafka_header_keys has 2 items and kafka_header_values 1",
        ("kafka_header_values", "{1,2}"),
        b'"0"',
    ),
    "goharvest, no topic": Mishap(
        "goharvest",
        "kafka_topic",
        STASH,
        (None, "bad", '"0"', [], []),
        lambda topic, number: (topic, "bad", f'"{number}"', [], []),
        "kafka_topic is null",
        ("kafka_topic", TOPIC),
        b'"0"',
    ),
    "native, headers that are none": Mishap(
        "native",
        "key",
        NATIVE,
        (TOPIC, b"bad", b'"0"', "{{"),
        lambda topic, number: (topic, b"bad", f'"{number}"'.encode(), None),
        "Stored headers are damaged: not JSON",
        ("headers", None),
        b'"0"',
    ),
    "debezium, no aggregate type": Mishap(
        "debezium",
        "aggregatetype",
        EVENT,
        (event_id(1000), None, "bad", '"0"'),
        lambda topic, number: (event_id(number), topic, "bad", f'"{number}"'),
        "aggregatetype is null",
        ("aggregatetype", TOPIC),
        b'"0"',
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS)
def test_a_malformed_row_is_set_aside_with_its_reason_and_comes_back_when_it_is_mended(
    table_of: TableOf, unique: str, eventually: Eventually, mishap: Mishap
) -> None:
    def filled(value: object) -> object:
        return unique if value == TOPIC else value

    table = table_of(mishap.layout)
    topic = f"outbox.event.{unique}" if mishap.layout == "debezium" else unique
    table.execute(f'ALTER TABLE {{table}} ALTER COLUMN "{mishap.loosened}" DROP NOT NULL')
    with inorder.Relay(table.settings) as relay:
        bad = tuple(map(filled, mishap.bad))
        table.execute(mishap.insert, mishap.good(unique, 1), bad, mishap.good(unique, 2))
        (row,) = eventually(lambda: exceeded_rows(table.settings))
        assert f"Outbox row {row.id} is malformed: {mishap.reason}" in row.reason
        assert (row.code, row.key, row.value) == ("RECORD-001", b"bad", mishap.value)
        # A row without a topic has no key that could wait for it.
        assert row.parks == (row.topic != "")
        eventually(lambda: table.count() == (1 if row.parks else 0))
        assert table.values(topic) == ([b'"1"'] if row.parks else [b'"1"', b'"2"'])
        mend(table, row.id, mishap.mended[0], filled(mishap.mended[1]))
        settle_exceeded(table.settings, "retry", "mended", id=row.id)
        eventually(lambda: table.count() == 0)
        eventually(lambda: relay.published == 3)
    assert table.values(topic) == ([b'"1"', b'"0"', b'"2"'] if row.parks else [b'"1"', b'"2"', b'"0"'])
    assert exceeded_rows(table.settings) == []


def mend(table: Table, id: int, column: str, value: object) -> None:
    """Corrects the row where it was set aside; `original` is what a retry puts back."""
    statement = (
        "UPDATE inorder_exceeded SET original = jsonb_set(CAST(original AS jsonb), ARRAY[%s],"
        " COALESCE(to_jsonb(CAST(%s AS text)), 'null')) WHERE id = %s"
    )
    table.execute(statement, (column, value, id))
