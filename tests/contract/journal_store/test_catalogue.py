"""The original's catalogue of replication and recovery, on both stores: what was appended arrives as it was."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, islice
from uuid import UUID

import pytest

from inorder.journal.action import Append
from inorder.journal.codec import action_of, append_record, events_of
from inorder.journal.replication.store_port import JournalChange, OffsetStatement
from inorder.journal.replication.transition import InsertEvents, InsertHead
from inorder.journal.stores.ports import JournalHead, LogRecord
from inorder.model.errors import GuaranteeError
from inorder.model.journal import Event, EventRecord, Key, PartitionOffset, Payload, PayloadMetadata, RecordMetadata
from inorder.model.message import Limits
from tests.contract.journal_store.conftest import NewReplicating
from tests.contract.journal_store.replaying import SENDER, START, Replicating

LIFE, EARLIER_LIFE = UUID(int=1), UUID(int=2)
PLACE = PartitionOffset(0, 0)

KINDS: dict[str, Payload] = {"none": None, "binary": b"\x00\xff", "text": "text ü", "json": {"key": ["value", 1.5]}}
SHAPES: dict[str, list[Payload]] = {
    **{f"one {kind}": [payload] for kind, payload in KINDS.items()},
    **{f"many {kind}": [payload] * 3 for kind, payload in KINDS.items()},
    "mixed": [None, "text", {"a": 1}, b"binary", "more text"],
}
"""The nine shapes of an append."""


def written(journal: Replicating, key: Key, events: Sequence[Event]) -> list[EventRecord]:
    """Writes an append with all that it can carry; its events as they are in the log."""
    about = RecordMetadata({"by": "me"}, PayloadMetadata(timedelta(days=1), {"n": 1}))
    record = append_record(key, events, START, SENDER, about, {"h": "ü", "i": ""}, Limits())
    lying = LogRecord(journal.offset, record.timestamp_ms, record.key, record.value, record.headers)
    action = action_of(lying, key.topic, journal.partition)
    assert isinstance(action, Append)
    journal._add(record)
    return events_of(action, lying, key.topic, journal.partition)


@pytest.mark.parametrize("first", [1, 2, 10])
def test_nine_shapes_of_an_append_arrive_with_all_that_they_carry(new_replicating: NewReplicating, first: int) -> None:
    journal = new_replicating(2)
    expected = {}
    for shape, payloads in SHAPES.items():
        key = replace(journal.key, id=shape)
        events = [Event(number, payload, frozenset({"t"})) for number, payload in enumerate(payloads, first)]
        expected[key] = written(journal, key, events)
    journal.flush()
    for key, events_of_key in expected.items():
        assert journal.events(key=key) == events_of_key
        head = journal.store.pointer(key)
        assert head is not None
        assert (head.seq_nr, head.partition_offset) == (events_of_key[-1].seq_nr, events_of_key[-1].partition_offset)
    assert journal.store.offset(journal.key.topic, 0) == len(SHAPES) - 1


def test_a_hundred_events_of_one_append_then_a_delete_an_append_and_a_purge(new_replicating: NewReplicating) -> None:
    journal = new_replicating(10)
    payloads = islice(cycle(KINDS.values()), 100)
    expected = written(journal, journal.key, [Event(number, payload) for number, payload in enumerate(payloads, 1)])
    journal.flush()
    assert journal.events() == expected
    journal.delete(50)
    journal.append(101)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == (list(range(51, 102)), (2, 101))
    journal.purge()
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([], None)


@pytest.mark.full
def test_ten_thousand_events_in_a_thousand_segments_are_recovered(new_replicating: NewReplicating) -> None:
    journal = new_replicating(10)
    for first in range(1, 10_001, 100):
        journal.append(*range(first, first + 100))
    journal.flush()
    assert journal.seen() == list(range(1, 10_001))
    assert journal.events(key=replace(journal.key, id="new")) == []
    journal.delete(5_000)
    journal.flush()
    head = journal.store.pointer(journal.key)
    assert head is not None
    assert (head.partition_offset.offset, head.seq_nr) == (100, 10_000)
    with closing(journal.store.read(journal.key, head, 1)) as events:
        assert next(events).seq_nr == 5_001
    assert journal.seen(9_991) == list(range(9_991, 10_001))


def test_marks_move_the_offset_over_holes_and_write_nothing(journal: Replicating) -> None:
    journal.append(1)
    journal.flush()
    before = journal.store.pointer(journal.key)
    for marks, end in (([1], 1), ([10, 11], 11)):
        for offset in marks:
            journal.offset = offset
            journal.mark()
        journal.flush()
        assert journal.store.offset(journal.key.topic, 0) == end
    assert journal.store.pointer(journal.key) == before


def test_an_expiry_of_one_minute_and_then_of_two_is_of_two(journal: Replicating) -> None:
    for number in (1, 2):
        journal.append(number, expire_after=timedelta(minutes=number))
    journal.flush()
    head = journal.store.pointer(journal.key)
    assert head is not None
    assert head.expiry is not None
    assert head.expiry.after == timedelta(minutes=2)


def rows(journal: Replicating, head: JournalHead, *inserts: tuple[UUID | None, int, int]) -> None:
    """Puts rows into the store as no replicator of ours would: of some life, with some number, so many seconds late."""
    statements = [
        OffsetStatement(
            0, InsertEvents(0, (EventRecord(Event(seq_nr), START + timedelta(seconds=late), PLACE),), record_id)
        )
        for record_id, seq_nr, late in inserts
    ]
    change = JournalChange(journal.key, (*statements, OffsetStatement(0, InsertHead(head, START, None))), head)
    with journal.replica.slice(journal.key.topic, 0) as writing:
        writing.lock_offset()
        writing.heads([journal.key])
        writing.carry_out([change])
        writing.move_offset(0)


def test_rows_of_another_life_or_of_none_are_left_out_also_where_they_have_the_same_number(
    new_replicating: NewReplicating,
) -> None:
    journal = new_replicating()
    head = JournalHead(PLACE, 10_000, 3, record_id=LIFE)
    rows(journal, head, (EARLIER_LIFE, 1, 1), (LIFE, 1, 2), (None, 2, 1), (LIFE, 2, 2), (EARLIER_LIFE, 3, 1))
    assert (journal.seen(), journal.pointer()) == ([1, 2], (0, 3))


def test_two_rows_of_one_number_are_told_where_no_life_tells_them_apart(new_replicating: NewReplicating) -> None:
    journal = new_replicating()
    rows(journal, JournalHead(PLACE, 10_000, 2), (None, 1, 0), (None, 2, 0), (None, 2, 1))
    with pytest.raises(GuaranteeError):
        journal.seen()
