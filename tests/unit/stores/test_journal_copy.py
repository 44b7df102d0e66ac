"""Rows in the binary COPY format hold what each event has, whichever of them share a record."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from struct import unpack_from
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.replication.transition import InsertEvents
from inorder.journal.stores.postgres_replica import COLUMNS, encode_copy
from inorder.journal.stores.rows import event_columns
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, PayloadMetadata, RecordMetadata

KEY = Key("id ü", "topic")
LIFE = UUID(int=7)
TIME = datetime(2026, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)
TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
PAYLOADS = st.one_of(st.binary(max_size=9), st.none(), TEXT, st.just({"a": [1, None]}))


SENDERS = st.tuples(
    st.none() | TEXT,
    st.sampled_from((None, "1.0")),
    st.sampled_from((RecordMetadata(), RecordMetadata({"a": "ü"}, PayloadMetadata(data=1)))),
    st.dictionaries(TEXT, TEXT, max_size=1),
)
EVENTS = st.builds(Event, st.integers(1, 2**62), PAYLOADS, st.frozensets(TEXT, max_size=2))


def append(at: tuple[int, int], millis: int, sender: tuple[Any, ...], events: list[Event]) -> list[EventRecord]:
    """Events of one append, which share all but themselves."""
    place, time = PartitionOffset(*at), TIME + timedelta(milliseconds=millis)
    return [EventRecord(event, time, place, *sender) for event in events]


APPENDS = st.builds(
    append,
    st.tuples(st.integers(0, 9), st.integers(0, 2**40)),
    st.integers(-(10**12), 10**12),
    SENDERS,
    st.lists(EVENTS, min_size=1, max_size=3),
)


def columns_of(data: bytes) -> list[dict[str, bytes | None]]:
    """The rows of a COPY; its frame is checked."""
    assert data.startswith(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    at, rows = 19, []
    while unpack_from(">h", data, at)[0] != -1:
        assert unpack_from(">h", data, at)[0] == len(COLUMNS)
        at, row = at + 2, {}
        for name in COLUMNS:
            [length] = unpack_from(">i", data, at)
            at += 4
            row[name] = None if length < 0 else data[at : at + length]
            at += max(0, length)
        rows.append(row)
    assert at + 2 == len(data)
    return rows


def told(row: dict[str, bytes | None]) -> tuple[object, ...]:
    """A row in the words of `EventColumns`, its time and number before."""
    text = {name: None if value is None else value.decode(errors="replace") for name, value in row.items()}
    [micros], [seq_nr] = unpack_from(">q", row["timestamp"] or b""), unpack_from(">q", row["seq_nr"] or b"")
    place = unpack_from(">i", row["partition"] or b"")[0], unpack_from(">q", row["offset"] or b"")[0]
    return (
        datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros),
        seq_nr,
        *place,
        text["origin"],
        text["version"],
        frozenset(tags_of(row["tags"] or b"")),
        text["metadata"],
        text["payload_type"],
        text["payload_txt"],
        row["payload_bin"],
        {} if row["headers"] is None else json.loads(row["headers"][1:]),
    )


def tags_of(data: bytes) -> list[str]:
    dimensions, has_nulls, kind = unpack_from(">iii", data)
    assert (has_nulls, kind) == (0, 25)
    if not dimensions:
        return []
    count, first = unpack_from(">ii", data, 12)
    assert (dimensions, first) == (1, 1)
    at, tags = 20, []
    for _ in range(count):
        [length] = unpack_from(">i", data, at)
        tags.append(data[at + 4 : at + 4 + length].decode())
        at += 4 + length
    assert at == len(data)
    return tags


@given(st.lists(APPENDS, min_size=1, max_size=2), st.none() | st.just(LIFE))
def test_every_event_is_a_row_with_all_its_columns(batches: list[list[EventRecord]], life: UUID | None) -> None:
    events = [each for some in batches for each in some]
    rows = columns_of(encode_copy([(KEY, InsertEvents(3, tuple(events), life))]))
    assert [told(row) for row in rows] == [(each.timestamp, each.seq_nr, *event_columns(each)) for each in events]
    assert {(row["topic"], row["id"], row["segment"]) for row in rows} == {
        (b"topic", "id ü".encode(), (3).to_bytes(8, "big"))
    }
    assert {row["meta_record_id"] for row in rows} == {life.bytes if life else None}


def test_half_a_character_is_refused_before_anything_is_sent() -> None:
    event = EventRecord(Event(1, "\ud800"), TIME, PartitionOffset(0, 0))
    with pytest.raises(UnicodeEncodeError):
        encode_copy([(KEY, InsertEvents(0, (event,), LIFE))])
