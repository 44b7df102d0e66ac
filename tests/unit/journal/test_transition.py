"""What the store writes for an action; tests name the cases in which the original is wrong."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from inorder.journal.action import KEEP_EXPIRY, RemoveExpiry, SetExpiry
from inorder.journal.replication.transition import (
    Change,
    DeleteEvents,
    DeleteHead,
    InsertEvents,
    InsertHead,
    UpdateHead,
    append,
    delete,
    purge,
)
from inorder.journal.segments import SegmentSpan
from inorder.journal.stores.ports import Expiry, JournalHead
from inorder.model.journal import MAX_SEQ_NR, EventRecord, PartitionOffset
from tests.unit.journal.acting import LIFE, NEXT_LIFE, TIME, at, head, record

DAY = timedelta(days=1)
TOMORROW = date(2026, 1, 2)


def place(offset: int) -> PartitionOffset:
    return PartitionOffset(0, offset)


def appending(before: JournalHead | None, offset: int, *events: EventRecord, size: int = 10) -> Change:
    return append(before, at(offset), events, segment_size=size, record_id=NEXT_LIFE)


def deleting(before: JournalHead | None, offset: int, to: int) -> Change:
    return delete(before, at(offset), to, segment_size=10, origin="host")


def test_the_first_append_inserts_events_and_then_the_head() -> None:
    events = record(1, 0), record(2, 0)
    made = JournalHead(place(0), 10, 2, None, None, NEXT_LIFE)
    change = appending(None, 0, *events)
    assert change.statements == (InsertEvents(0, events, NEXT_LIFE), InsertHead(made, TIME, "host"))
    assert change.head == made


def test_a_journal_may_begin_at_any_number() -> None:
    change = appending(None, 0, record(5, 0))
    assert change.head is not None
    assert (change.head.seq_nr, change.head.delete_to) == (5, 4)


def test_events_go_to_their_segments() -> None:
    first = appending(None, 0, record(1, 0), size=2)
    then = appending(first.head, 1, record(2, 1), record(3, 1), size=2)
    inserts = [each for each in (*first.statements, *then.statements) if isinstance(each, InsertEvents)]
    assert [(each.segment, [event.seq_nr for event in each.events]) for each in inserts] == [
        (0, [1]),
        (0, [2]),
        (1, [3]),
    ]


def test_what_was_seen_before_is_left_out() -> None:
    change = appending(head(2, 1), 4, record(1, 1), record(2, 3))
    assert change.statements == (InsertEvents(0, (record(2, 3),), LIFE), UpdateHead(place(4), TIME, seq_nr=2))
    assert change.head == head(4, 2)
    assert change.forks == ()


def test_actions_that_the_head_includes_do_nothing() -> None:
    before = head(31, 13, 12)
    for change in (appending(before, 13, record(14, 13)), deleting(before, 3, 13), purge(before, at(3))):
        assert (change.head, change.is_change) == (before, False)


def test_a_delete_moves_the_head_first_and_then_deletes_events() -> None:
    change = deleting(head(1, 1), 2, MAX_SEQ_NR)
    assert change.statements == (UpdateHead(place(2), TIME, delete_to=1), DeleteEvents(SegmentSpan(0, 0)))
    again = deleting(change.head, 3, MAX_SEQ_NR)
    assert again.statements == (UpdateHead(place(3), TIME),)
    assert again.head == head(3, 1, 1)


def test_a_delete_in_mid_segment_keeps_the_rest_of_it() -> None:
    assert deleting(head(1, 25, 3), 2, 12).statements[1:] == (DeleteEvents(SegmentSpan(0, 1), 12),)


def test_a_delete_reaches_no_further_than_the_journal() -> None:
    assert deleting(head(1, 574, 544), 2, 575).head == head(2, 574, 574)


def test_a_delete_of_a_journal_that_is_not_there_makes_a_head_without_an_event() -> None:
    change = deleting(None, 0, 5)
    made = JournalHead(place(0), 10, 5, 5)
    assert change.statements == (InsertHead(made, TIME, "host"),)
    assert not made.is_begun
    assert deleting(change.head, 1, 7).head == JournalHead(place(1), 10, 7, 7)


def test_a_purge_hides_everything_then_deletes_it_then_the_head() -> None:
    change = purge(head(3, 2), at(4))
    assert change.statements == (
        UpdateHead(place(3), TIME, delete_to=2),
        DeleteEvents(SegmentSpan(0, 1)),
        DeleteHead(),
    )
    assert change.head is None
    assert purge(None, at(4)).statements == ()


def test_a_purge_may_be_repeated_at_its_own_offset() -> None:
    assert purge(head(2, 2), at(2)).is_change
    assert not purge(head(2, 2), at(1)).is_change


@pytest.mark.parametrize(
    ("before", "span"),
    [
        (head(1, 100), SegmentSpan(0, 10)),
        (head(1, 100, 99), SegmentSpan(8, 10)),
        (head(1, 99, 100), SegmentSpan(8, 10)),
    ],
)
def test_a_purge_deletes_a_segment_more_at_either_end(before: JournalHead, span: SegmentSpan) -> None:
    [rows] = [each for each in purge(before, at(2)).statements if isinstance(each, DeleteEvents)]
    assert rows == DeleteEvents(span)


def test_a_head_that_is_deleted_further_than_it_reaches_is_raised_before_a_purge() -> None:
    assert purge(head(1, 99, 100), at(2)).statements[0] == UpdateHead(place(1), TIME, seq_nr=100)


def test_events_carry_the_record_id_of_their_journal_and_none_where_it_has_none() -> None:
    for record_id in (LIFE, None):
        change = appending(head(0, 1, record_id=record_id), 1, record(2, 1))
        assert change.head == head(1, 2, record_id=record_id)
        assert isinstance(change.statements[0], InsertEvents)
        assert change.statements[0].record_id == record_id


def test_the_expiry_is_written_when_it_changes() -> None:
    tomorrow = Expiry(DAY, TOMORROW)
    first = appending(None, 0, record(1, 0, DAY))
    assert first.head is not None
    assert first.head.expiry == tomorrow
    for before, after, change in (
        (None, DAY, SetExpiry(tomorrow)),
        (tomorrow, DAY, KEEP_EXPIRY),
        (tomorrow, None, RemoveExpiry()),
        (None, None, KEEP_EXPIRY),
    ):
        update = appending(head(0, 1, expiry=before), 1, record(2, 1, after)).statements[-1]
        assert update == UpdateHead(place(1), TIME, seq_nr=2, expiry=change)


class TestWhereTheOriginalIsWrong:
    """Each of these fails with the original's rules."""

    def test_a_lower_number_never_lowers_the_pointer(self) -> None:
        change = appending(head(0, 5), 1, record(3, 1))
        assert change.head == head(1, 5)
        assert change.statements == (UpdateHead(place(1), TIME),)
        assert [str(fork) for fork in change.forks] == ["suspected fork: seq_nr 3 at 0:1 after 5"]

    def test_of_two_events_with_one_number_the_first_stays(self) -> None:
        change = appending(head(0, 2), 2, record(2, 1), record(3, 2))
        assert isinstance(change.statements[0], InsertEvents)
        assert [event.seq_nr for event in change.statements[0].events] == [3]
        assert [fork.is_proven for fork in change.forks] == [True]

    def test_a_smaller_delete_does_not_lower_delete_to(self) -> None:
        assert deleting(head(0, 9, 5), 1, 2).head == head(1, 9, 5)
        assert deleting(head(0, 300, 400), 1, 200).head == head(1, 400, 400)

    def test_an_append_after_a_delete_of_nothing_is_visible(self) -> None:
        nothing = deleting(None, 0, 5).head
        change = appending(nothing, 1, record(1, 1), record(2, 1))
        assert change.head == JournalHead(place(1), 10, 2, None, None, NEXT_LIFE)
        assert change.statements[-1] == UpdateHead(place(1), TIME, seq_nr=2, clears_delete_to=True, record_id=NEXT_LIFE)
        assert change.forks == ()

    def test_a_journal_whose_topic_was_repartitioned_goes_on_in_its_new_partition(self) -> None:
        change = append(
            head(1000, 5),
            at(0).__class__(PartitionOffset(1, 0), TIME),
            [record(6, 0)],
            segment_size=10,
            record_id=NEXT_LIFE,
        )
        assert change.head is not None
        assert change.head.partition_offset == PartitionOffset(1, 0)
