"""Rows are encoded as Cassandra's driver would encode them, and batches have a limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from cassandra.cqltypes import (
    BytesType,
    DateType,
    Int32Type,
    LongType,
    MapType,
    SetType,
    UTF8Type,
    UUIDType,
)
from cassandra.protocol import ColumnMetadata
from cassandra.query import UNSET_VALUE, PreparedStatement

from inorder.journal.replication.transition import InsertEvents
from inorder.journal.stores.cassandra_clock import Clock
from inorder.journal.stores.cassandra_replica import BATCH_BYTES, BATCH_ROWS, Values, Write, build_writes
from inorder.journal.stores.rows import event_columns
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, Payload, RecordMetadata

KEY = Key("id ü", "topic")
LIFE = UUID(int=7)
CLOCK = Clock(1_800_000_000_000_000)
TIME = datetime(2026, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)
COLUMN = ColumnMetadata("journal", "journal", "id", UTF8Type)
INSERT = PreparedStatement([COLUMN], b"insert", [0, 1, 2], "", "journal", 5, None, None)

TEXTS = UTF8Type
TAGS = SetType.apply_parameters([UTF8Type])
HEADERS = MapType.apply_parameters([UTF8Type, UTF8Type])
TYPES = (
    TEXTS, TEXTS, LongType, LongType, DateType, UUIDType, Int32Type, LongType, TEXTS, TEXTS, TAGS, TEXTS, TEXTS, TEXTS,
    BytesType, HEADERS, LongType,
)  # fmt: skip
"""Of the statement `insert_event`, in its order."""


def rows_of(*made: Write) -> list[Values]:
    return [values for batch in made for values in batch.rows]


def bound(statement: InsertEvents, record: EventRecord) -> list[Any]:
    """What the driver would make of a row; what there is none of is left unset."""
    columns = event_columns(record)
    values = (
        KEY.id, KEY.topic, statement.segment, record.seq_nr, record.timestamp, statement.record_id, *columns[:4],
        set(columns.tags), *columns[5:9], dict(columns.headers), CLOCK.micros(record.offset),
    )  # fmt: skip
    return [
        UNSET_VALUE if value is None or value in (set(), {}) else kind.serialize(value, 5)
        for kind, value in zip(TYPES, values, strict=True)
    ]


def append(offset: int, *payloads: Payload, tags: str = "", **more: Any) -> list[EventRecord]:
    place, time = PartitionOffset(2, offset), TIME + timedelta(seconds=offset)
    events = [Event(10 * offset + number, each, frozenset(tags)) for number, each in enumerate(payloads, 1)]
    return [EventRecord(event, time, place, **more) for event in events]


@pytest.mark.parametrize("life", [LIFE, None])
def test_values_are_those_that_the_driver_would_bind(life: UUID | None) -> None:
    about = RecordMetadata({"a": 1})
    records = [
        *append(1, b"plain", b"", origin="host", version="1.0"),
        *append(2, b"tagged", "text", None, {"json": 1}, tags="ü", metadata=about, headers={"h": "ü"}),
    ]
    statement = InsertEvents(3, tuple(records), life)
    assert rows_of(*build_writes(INSERT, KEY, statement, CLOCK)) == [bound(statement, record) for record in records]


def test_only_the_first_append_of_a_life_writes_its_nulls() -> None:
    statement = InsertEvents(0, (*append(1, b"first", "second"), *append(2, b"later")), LIFE)
    usual, begun = (rows_of(*build_writes(INSERT, KEY, statement, CLOCK, begins=begins)) for begins in (False, True))
    assert [[None if value is UNSET_VALUE else value for value in row] for row in usual[:2]] == begun[:2]
    assert (usual[2:], [UNSET_VALUE in row for row in begun]) == (begun[2:], [False, False, True])


def test_a_batch_ends_with_its_rows_or_its_bytes_and_what_is_larger_goes_alone() -> None:
    small = append(1, *[b"x"] * (BATCH_ROWS + 1))
    large = append(1000, b"x" * BATCH_BYTES, b"", b"x" * BATCH_BYTES * 2, "y" * BATCH_BYTES, b"x", b"x")
    made = list(build_writes(INSERT, KEY, InsertEvents(0, (*small, *large), LIFE), CLOCK))
    assert [len(batch.rows) for batch in made] == [BATCH_ROWS, 1, 2, 1, 1, 2]


def test_half_a_character_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(UnicodeEncodeError):
        list(build_writes(INSERT, KEY, InsertEvents(0, tuple(append(1, "\ud800")), LIFE), CLOCK))
