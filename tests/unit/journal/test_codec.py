"""An action survives producing and consuming unchanged, and foreign records are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from inorder.journal.action import Action, Append, Delete, Mark, Purge
from inorder.journal.codec import ACTION_HEADER, RecordSender, action_of, action_record, append_record, events_of
from inorder.journal.stores.ports import LogRecord
from inorder.model.errors import DamagedRecordError, ValidationError
from inorder.model.journal import (
    MAX_SEQ_NR,
    Event,
    EventRecord,
    Key,
    PartitionOffset,
    Payload,
    PayloadMetadata,
    RecordMetadata,
)
from inorder.model.message import Limits, Record

KEY = Key("id", "journal")
TIME = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def lying(record: Record, offset: int = 7) -> LogRecord:
    return LogRecord(offset, record.timestamp_ms, record.key, record.value, record.headers)


@pytest.mark.parametrize("origin", [None, "host"])
@pytest.mark.parametrize("version", [None, "0.1.0"])
def test_actions_without_events_come_back(origin: str | None, version: str | None) -> None:
    actions: list[Action] = [Delete(3, origin, version), Purge(origin, version), Mark("x", origin, version)]
    for action in actions:
        record = action_record(KEY, action, TIME, Limits())
        assert (record.topic, record.key, record.value, record.partition) == ("journal", b"id", None, None)
        assert action_of(lying(record), "journal", 0) == action


@pytest.mark.parametrize("seq_nrs", [[1], [MAX_SEQ_NR], [1, 2, 3]])
@pytest.mark.parametrize("payload", [None, "text", {"json": 1}, b"binary"])
def test_appends_come_back_with_all_they_had(seq_nrs: list[int], payload: Payload) -> None:
    for sender, header, headers, tags, expiry, data in product(
        (RecordSender(), RecordSender("host", "0.1.0")),
        (None, {"a": 1}),
        ({}, {"key": "välue"}),
        (frozenset[str](), frozenset({"a", "b"})),
        (None, timedelta(days=1)),
        (None, [1]),
    ):
        events = [Event(seq_nr, payload, tags) for seq_nr in seq_nrs]
        metadata = RecordMetadata(header, PayloadMetadata(expiry, data))
        record = lying(append_record(KEY, events, TIME, sender, metadata, headers, Limits()))
        action = action_of(record, "journal", 0)
        assert isinstance(action, Append)
        assert (action.range.first, action.range.last) == (seq_nrs[0], seq_nrs[-1])
        place = PartitionOffset(0, 7)
        expected = [EventRecord(event, TIME, place, *sender, metadata, headers) for event in events]
        assert events_of(action, record, "journal", 0) == expected


def test_the_action_is_the_first_header() -> None:
    record = append_record(KEY, [Event(1)], TIME, RecordSender(), RecordMetadata(), {"a": "b"}, Limits())
    assert [name for name, _ in record.headers] == [ACTION_HEADER, "a"]


def made(
    headers: Mapping[str, bytes | None], key: bytes | None = b"id", time: int | None = 1, value: bytes | None = b"{}"
) -> LogRecord:
    return LogRecord(42, time, key, value, tuple(headers.items()))


APPEND = b'{"append":{"range":{"from":1,"to":1},"payloadType":"json"}}'


@pytest.mark.parametrize(
    "record",
    [
        made({}),
        made({"other": b"x"}),
        made({ACTION_HEADER: None}),
        made({ACTION_HEADER: APPEND}, key=None),
        made({ACTION_HEADER: APPEND}, time=None),
        made({ACTION_HEADER: APPEND}, value=None),
        made({ACTION_HEADER: b'{"new":{}}'}),
    ],
)
def test_records_that_are_none_of_ours_are_passed_over(record: LogRecord) -> None:
    assert action_of(record, "journal", 0) is None


def test_a_damaged_header_is_refused_with_its_coordinates() -> None:
    with pytest.raises(DamagedRecordError) as caught:
        action_of(made({ACTION_HEADER: b"{"}), "journal", 3)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("journal", 3, 42)
    assert "journal[3] offset 42 of key b'id'" in caught.value.message


@pytest.mark.parametrize(
    ("headers", "value"),
    [({"user": b"\xff"}, b'{"events":[{"seqNr":1}]}'), ({}, b"{"), ({}, b'{"events":[]}')],
)
def test_damaged_events_are_refused_with_their_coordinates(headers: dict[str, bytes | None], value: bytes) -> None:
    record = made({ACTION_HEADER: APPEND, **headers}, value=value)
    action = action_of(record, "journal", 3)
    assert isinstance(action, Append)
    with pytest.raises(DamagedRecordError, match=r"journal\[3\] offset 42"):
        events_of(action, record, "journal", 3)


@pytest.mark.parametrize(
    ("headers", "events", "limits", "field"),
    [
        ({ACTION_HEADER: "x"}, [Event(1)], Limits(), "headers"),
        ({"a": "\ud800"}, [Event(1)], Limits(), "headers"),
        ({}, [Event(1, "x" * 200)], Limits(max_value_bytes=100), "value"),
        ({}, [], Limits(), "events"),
        ({}, [Event(1, "x", frozenset({"\ud800"})), Event(2, b"")], Limits(), "tags"),
    ],
)
def test_an_append_that_kafka_would_refuse_is_refused_first(
    headers: dict[str, str], events: list[Event], limits: Limits, field: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        append_record(KEY, events, TIME, RecordSender(), RecordMetadata(), headers, limits)
    assert caught.value.field == field
