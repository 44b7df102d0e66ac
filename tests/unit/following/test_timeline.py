"""The events of a key come in order, each with what every hop knows of it; only evidence is marked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from inorder.journal.action import Action, Condition, Delete, Mark, Purge
from inorder.journal.codec import ACTION_HEADER, RecordSender, action_record, append_record
from inorder.journal.stores.ports import LogRecord
from inorder.model.journal import Event, Key, RecordMetadata
from inorder.model.message import Limits, Record
from inorder.operate.key_timeline import KeyScan, timeline
from inorder.operate.key_trace import (
    JournalHop,
    KeyTrace,
    Letter,
    NewestRecord,
    OutboxHop,
    SetAsideRow,
    Sighting,
    TableHop,
    TopicHop,
    WaitingRow,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 4, 9, tzinfo=UTC)
TOPIC = TopicHop("orders", 0, 1, 0, 9, 3, (Sighting(2, 1, 5), Sighting(4, 2, 5), Sighting(7, 3, None)))
TABLE = TableHop("messages", "upsert:messages", {"id": 42, "updated_at": AT}, (0, 4), due={("orders", 1): 7})


def places(trace: KeyTrace) -> list[tuple[int | None, str]]:
    return [(event.offset, place.state) for event in timeline(trace) for place in event.places]


def test_each_record_says_what_became_of_it_in_the_table() -> None:
    rejected = replace(TABLE, letters=(Letter("orders:1:2", "wrong-type", "n is text", LATER),))
    events = timeline(KeyTrace("42", topics=(TOPIC,), tables=(rejected,)))
    assert [(one.kafka_topic, one.partition, one.offset, one.timestamp_ms) for one in events] == [
        ("orders", 1, 2, 1),
        ("orders", 1, 4, 2),
        ("orders", 1, 7, 3),
    ]
    assert [(place.state, place.at, place.detail) for one in events for place in one.places] == [
        ("rejected", LATER, "wrong-type, n is text"),
        ("applied", AT, ""),
        ("waits", None, "the pipeline continues at 7"),
    ]


def test_a_record_that_a_later_one_replaced_is_passed() -> None:
    passed = replace(TABLE, version=(0, 7), row=None, is_deleted=True, due={("orders", 1): 8})
    assert places(KeyTrace("42", topics=(TOPIC,), tables=(passed,))) == [(2, "passed"), (4, "passed"), (7, "applied")]


def test_the_newest_record_is_stale_only_where_the_row_has_a_later_version() -> None:
    newest = NewestRecord("orders", 1, (0, 7), 9, "write")
    passed = replace(TABLE, due={("orders", 1): 9}, newest=newest)
    for version, state in (((0, 8), "stale"), ((0, 9), "passed"), ((1, 1), "passed"), ((0, 4), "passed")):
        *_, last = places(KeyTrace("42", topics=(TOPIC,), tables=(replace(passed, version=version),)))
        assert last == (7, state)


def test_the_version_of_a_record_has_the_generation_of_its_pointer() -> None:
    again = replace(TABLE, version=(3, 4), generations={("orders", 1): 3})
    assert places(KeyTrace("42", topics=(TOPIC,), tables=(again,)))[1] == (4, "applied")


def test_a_table_says_nothing_of_a_topic_that_it_does_not_read() -> None:
    assert places(KeyTrace("42", topics=(replace(TOPIC, topic="others"),), tables=(TABLE,))) == []


def test_rows_of_the_outbox_follow_their_records_or_have_their_place_by_id() -> None:
    sent = replace(TOPIC, newest=(Sighting(2, 1, 5, "11"), Sighting(4, 2, 5, "13")))
    outbox = OutboxHop(
        "outbox",
        2,
        (WaitingRow(13, "orders", AT), WaitingRow(14, "orders", LATER), WaitingRow(15, "bills", LATER)),
        (SetAsideRow(12, "orders", "too-large", "2 MB", parks=False, written_at=AT, exceeded_at=LATER),),
    )
    events = timeline(KeyTrace("42", outbox, (sent,), written={"13": AT}))
    assert [(one.topic, one.outbox_id, one.row, one.written_at, one.offset) for one in events] == [
        ("bills", "15", "waits", LATER, None),
        ("orders", "11", "gone", None, 2),
        ("orders", "12", "exceeded", AT, None),
        ("orders", "13", "sent", AT, 4),
        ("orders", "14", "waits", LATER, None),
    ]
    assert (events[2].detail, events[2].exceeded_at) == ("too-large, 2 MB", LATER)


def test_a_page_of_older_records_has_no_rows_that_wait() -> None:
    older = replace(TOPIC, page=(Sighting(0, 1, 5), Sighting(1, 1, 5)))
    events = timeline(KeyTrace("42", OutboxHop("outbox", 1, (WaitingRow(14, "orders", AT),)), (older,)))
    assert [one.offset for one in events] == [0, 1]


def test_records_of_an_earlier_generation_come_first() -> None:
    first = replace(TOPIC, name="orders", newest=(Sighting(99, 1, 5),))
    second = replace(first, topic="orders.g1", generation=1, newest=(Sighting(0, 2, 5),))
    events = timeline(KeyTrace("42", topics=(second, first)))
    assert [(one.topic, one.kafka_topic, one.offset) for one in events] == [
        ("orders", "orders", 99),
        ("orders", "orders.g1", 0),
    ]


def test_records_of_a_journal_are_stored_deleted_quarantined_or_wait() -> None:
    numbers = [(1, 2), (3, 3), (4, 4), (5, 5)]
    seen = tuple(Sighting(place, 1, 5, action="append", seq_nrs=found) for place, found in enumerate(numbers))
    topic = TopicHop("journal", 0, 0, 0, 4, 4, seen)
    stored = JournalHop("journal", seq_nr=4, delete_to=2, offset=2, replicated=2, partition=0)
    trace = KeyTrace("42", topics=(topic,), journals=(stored,))
    assert [state for _, state in places(trace)] == ["deleted", "stored", "stored", "waits"]
    parked = JournalHop("journal", replicated=2, parked="damaged", parked_at=1, partition=0)
    trace = replace(trace, journals=(parked, replace(parked, partition=1)))
    assert [state for _, state in places(trace)] == ["stored", "quarantined", "quarantined", "waits"]


# Marks.


def record(offset: int, value: bytes | None, id: str | None = None) -> LogRecord:
    headers = () if id is None else (("outbox-id", id.encode()),)
    return LogRecord(offset, 1_000, b"42", value, headers)


def marks(scan: KeyScan, *records: LogRecord) -> list[list[tuple[str, str]]]:
    seen = [scan.sight(each) for each in records]
    return [[(mark.kind, mark.sentence) for mark in each.marks] for each in seen if each is not None]


def test_a_record_with_the_outbox_id_of_an_earlier_one_is_a_duplicate() -> None:
    scan = KeyScan("orders", 1, id_header="outbox-id")
    records = record(1, b"a", "7"), record(3, b"b", "8"), record(5, b"c", "7"), record(6, b"d", "7")
    assert marks(scan, *records) == [
        [],
        [],
        [("duplicate", "the outbox id 7 is at offset 1 too")],
        [("duplicate", "the outbox id 7 is at offset 5 too")],
    ]
    seen = KeyScan("orders", 1).sight(records[0])
    assert seen is not None
    assert seen.outbox_id is None, "without the setting a header of this name is one of the application"


def test_a_value_that_came_before_is_only_the_same_content_and_two_deletes_are_nothing() -> None:
    found = marks(KeyScan("orders", 1), *(record(at, value) for at, value in enumerate((b"a", b"b", b"a", None, None))))
    assert found == [[], [], [("same content", "offset 0 has the same value")], [], []]


def test_offsets_that_others_have_are_no_gap() -> None:
    assert marks(KeyScan("orders", 1), record(1, b"a"), record(900, b"b")) == [[], []]


def test_what_is_remembered_of_a_key_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inorder.operate.key_timeline.REMEMBERED", 2)
    scan = KeyScan("orders", 1)
    assert marks(scan, *(record(at, value) for at, value in enumerate((b"a", b"b", b"c", b"a")))) == [[]] * 4
    assert len(scan._seen) == 2


KEY = Key("42", "journal")


def in_log(offset: int, sent: Record) -> LogRecord:
    return LogRecord(offset, sent.timestamp_ms, sent.key, sent.value, sent.headers)


def append(offset: int, *numbers: int, id: str | None = None, after: int | None = None) -> LogRecord:
    events, condition = [Event(number) for number in numbers], None if after is None else Condition(seq_nr=after)
    sent = append_record(
        KEY, events, AT, RecordSender(), RecordMetadata(), {}, Limits(), append_id=id, condition=condition
    )
    return in_log(offset, sent)


def other(offset: int, action: Action) -> LogRecord:
    return in_log(offset, action_record(KEY, action, AT, Limits()))


def test_missing_numbers_between_two_appends_are_a_gap_and_a_new_life_begins_without_one() -> None:
    scan = KeyScan("journal", 0, is_journal=True)
    records = append(3, 5, 6), append(4, 9), other(5, Delete(9)), append(6, 11), other(7, Purge()), append(8, 4)
    assert marks(scan, *records) == [
        [],
        [("gap", "numbers 7 to 8 are missing before it")],
        [],
        [("gap", "number 10 is missing before it")],
        [],
        [],
    ]


def test_an_append_that_does_not_count_is_void_and_one_that_came_twice_a_duplicate() -> None:
    scan = KeyScan("journal", 0, is_journal=True)
    records = append(0, 1, id="a"), append(1, 1, id="a"), append(2, 7, after=3), append(3, 2, after=1)
    assert marks(scan, *records) == [
        [],
        [("duplicate", "it is the append of offset 0"), ("void", "it does not count: the journal ended at 1")],
        [("void", "it does not count: the journal ended at 1")],
        [],
    ]


def test_the_first_append_that_is_left_is_judged_by_nothing() -> None:
    scan = KeyScan("journal", 0, is_journal=True)
    assert marks(scan, other(8, Delete(3)), append(9, 7, after=6), append(10, 8, after=7)) == [[], [], []]


def test_a_mark_is_no_event_and_other_records_have_their_action() -> None:
    scan = KeyScan("journal", 0, is_journal=True)
    damaged = append(2, 1)._replace(headers=((ACTION_HEADER, b"\xff"),))
    seen = [scan.sight(each) for each in (other(0, Mark("x")), append(1, 1, 2), damaged, other(3, Purge()))]
    assert [each and (each.action, each.seq_nrs) for each in seen] == [
        None,
        ("append", (1, 2)),
        ("unreadable", None),
        ("purge", None),
    ]
