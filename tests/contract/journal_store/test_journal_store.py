"""What a store shows of a journal after its actions were replicated: the same whatever the store and its segments."""

from __future__ import annotations

from datetime import date, timedelta
from typing import cast

import pytest

from inorder.journal.stores.cassandra import CassandraJournal
from inorder.journal.stores.opening import JournalStore
from inorder.journal.stores.ports import Expiry, JournalFilter
from inorder.journal.stores.postgres import PostgresJournal
from inorder.model.journal import MAX_SEQ_NR, Json, Key, Payload, PayloadMetadata, RecordMetadata
from tests.contract.journal_store.conftest import NewReplicating
from tests.contract.journal_store.replaying import SENDER, START, Replicating, slice_of

COUNTS = (1, 2, 5, 10)


def test_an_unknown_journal_has_nothing(journal: Replicating) -> None:
    assert journal.store.pointer(journal.key) is None
    assert journal.store.offset(journal.key.topic, 0) is None
    assert list(journal.store.ids(journal.key.topic)) == []
    assert journal.replica.offsets(journal.key.topic) == {}


@pytest.mark.full
@pytest.mark.parametrize("first", [1, 5, 10])
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "singles"])
def test_what_was_appended_is_read_from_any_number(new_replicating: NewReplicating, first: int, together: bool) -> None:
    for partition, count in enumerate(COUNTS):
        for size in (2, 10_000):
            journal = new_replicating(size, f"{count} in segments of {size}")
            journal.partition = partition * 100_000 + size
            numbers = list(range(first, first + count))
            groups = [numbers] if together else [[number] for number in numbers]
            for group in groups:
                journal.append(*group)
                journal.flush()
            assert journal.seen() == numbers
            for start in numbers:
                assert journal.seen(start) == numbers[start - first :]
            assert journal.seen(MAX_SEQ_NR) == []
            assert journal.pointer() == (journal.offset - 1, numbers[-1])


def test_deletes_leave_the_rest_and_the_pointer_keeps_the_last_number(journal: Replicating) -> None:
    journal.append(1, 2, 3, 4, 5)
    journal.flush()
    for to in range(1, 6):
        journal.delete(to)
        journal.flush()
        assert journal.seen() == list(range(to + 1, 6))
        assert journal.pointer() == (to, 5)
    journal.delete(5)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([], (6, 5))
    journal.append(6)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([6], (7, 6))


def test_a_smaller_delete_brings_nothing_back(journal: Replicating) -> None:
    journal.append(1, 2, 3, 4)
    journal.delete(3)
    journal.flush()
    journal.delete(1)
    journal.flush()
    assert journal.seen() == [4]


@pytest.mark.parametrize("to", [1, 2, 5])
def test_a_delete_of_a_journal_that_is_not_there_hides_no_event_to_come(journal: Replicating, to: int) -> None:
    journal.delete(to)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([], (0, to))
    journal.append(1, 2)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([1, 2], (1, 2))


def test_a_first_append_may_begin_anywhere(journal: Replicating) -> None:
    journal.append(5, 6, 7)
    journal.flush()
    assert journal.seen() == [5, 6, 7]


def test_a_gap_over_the_border_of_a_segment_is_no_end(new_replicating: NewReplicating) -> None:
    journal = new_replicating(10)
    journal.append(1, 2, 3)
    journal.append(25)
    journal.append(57, 58)
    journal.flush()
    assert journal.seen() == [1, 2, 3, 25, 57, 58]
    journal.delete(3)
    journal.flush()
    assert journal.seen() == [25, 57, 58]


def test_a_lower_number_never_lowers_the_pointer(journal: Replicating) -> None:
    journal.append(1, 2, 3)
    journal.flush()
    journal.append(2)
    journal.append(1)
    journal.flush()
    assert journal.seen() == [1, 2, 3]
    assert journal.pointer() == (0, 3)


def test_a_purged_journal_is_gone_and_begins_anew(journal: Replicating) -> None:
    journal.append(1, 2, 3, 4, 5)
    journal.delete(2)
    journal.flush()
    journal.purge()
    journal.flush()
    assert (journal.pointer(), journal.seen()) == (None, [])
    assert list(journal.store.ids(journal.key.topic)) == []
    journal.append(1)
    journal.flush()
    assert (journal.pointer(), journal.seen()) == ((3, 1), [1])


def test_purge_and_append_in_one_slice_leave_only_the_new_life(journal: Replicating) -> None:
    journal.append(1, 2, 3)
    journal.flush()
    journal.append(4)
    journal.purge()
    journal.append(1)
    journal.flush()
    assert (journal.pointer(), journal.seen()) == ((3, 1), [1])


def test_the_catalogue_of_appends_and_deletes(journal: Replicating) -> None:
    journal.offset = 2
    journal.append(1)
    journal.flush()
    journal.append(2)
    journal.foreign()
    journal.flush()
    assert journal.pointer() == (3, 2)
    journal.delete(1)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([2], (5, 2))
    journal.append(3)
    journal.delete(3)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([], (7, 3))
    journal.delete(MAX_SEQ_NR)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([], (8, 3))


@pytest.mark.parametrize(
    "payload",
    [None, b"\x00\xff", "text ü", {"key": "value"}, Json("text"), Json(None), [1, 2.5], True],
    ids=repr,
)
def test_an_event_is_read_as_it_was_appended(new_replicating: NewReplicating, payload: Payload) -> None:
    journal = new_replicating()
    about = RecordMetadata({"by": "me"}, PayloadMetadata(timedelta(days=1), {"n": 1}))
    journal.append(1, 2, payload=payload, tags=["a", 'b"ü'], headers={"h": "ü"}, metadata=about)
    journal.flush()
    for number, record in enumerate(journal.events(), 1):
        assert (record.event.seq_nr, record.event.payload, record.event.tags) == (
            number,
            payload,
            frozenset(("a", 'b"ü')),
        )
        assert (record.timestamp, record.partition_offset.offset, record.metadata) == (START, 0, about)
        assert (record.origin, record.version, record.headers) == (*SENDER, {"h": "ü"})


def test_expiry_is_set_changed_and_removed_by_appends(journal: Replicating) -> None:
    def expiry() -> Expiry | None:
        head = journal.store.pointer(journal.key)
        assert head is not None
        return head.expiry

    for number, after in enumerate([None, timedelta(minutes=1), timedelta(days=2), timedelta(days=2), None], 1):
        journal.append(number, expire_after=after)
        journal.flush()
        days = {timedelta(minutes=1): date(2026, 1, 1), timedelta(days=2): date(2026, 1, 3)}
        assert expiry() == (None if after is None else Expiry(after, days[after]))


def test_offsets_move_with_foreign_records_too_and_never_back(journal: Replicating) -> None:
    journal.foreign()
    journal.flush()
    assert journal.store.offset(journal.key.topic, 0) == 0
    journal.partition = 3
    journal.offset = 7
    journal.append(1)
    journal.flush()
    assert journal.replica.offsets(journal.key.topic) == {0: 0, 3: 7}
    with journal.replica.slice(journal.key.topic, 3) as transaction:
        transaction.lock_offset()
        transaction.move_offset(2)
    assert journal.store.offset(journal.key.topic, 3) == 7


def test_a_replay_in_any_chunking_changes_nothing(journal: Replicating) -> None:
    journal.append(1, 2)
    journal.delete(1)
    journal.append(3, expire_after=timedelta(days=1))
    records = list(journal._waiting)
    journal.flush()
    before = (journal.store.pointer(journal.key), journal.events())
    for start in range(3):
        for end in range(start + 1, 4):
            journal.replicate(slice_of(journal.key.topic, 0, records[start:end]))
    assert (journal.store.pointer(journal.key), journal.events()) == before


def test_a_slice_that_is_broken_off_before_its_offset_moves_is_done_again(journal: Replicating) -> None:
    journal.append(1)
    journal.flush()
    journal.append(2, 3)
    journal.delete(2)
    records = list(journal._waiting)

    with pytest.raises(RuntimeError, match="power"), journal.carrying_out(records):
        raise RuntimeError("power")
    assert journal.store.offset(journal.key.topic, 0) == 0
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([3], (2, 3))
    assert journal.store.offset(journal.key.topic, 0) == 2


def test_journals_of_different_segment_sizes_live_side_by_side(new_replicating: NewReplicating) -> None:
    small, large = new_replicating(2, "small"), new_replicating(5, "large")
    large.offset = 10
    for journal in (small, large):
        journal.append(1, 2, 3, 4, 5, 6, 7)
        journal.flush()
    other = new_replicating(100, "small")
    other.offset = 20
    other.append(8)
    other.delete(3)
    other.flush()
    assert small.seen() == [4, 5, 6, 7, 8]
    assert large.seen() == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(small.store.ids(small.key.topic)) == ["large", "small"]


def test_ids_are_those_of_the_topic_each_once(new_replicating: NewReplicating) -> None:
    journal = new_replicating()
    keys = [Key(f"id-{number}", journal.key.topic) for number in range(10)]
    for key in keys:
        journal.append(1, key=key)
    journal.purge(key=keys[3])
    journal.flush()
    assert sorted(journal.store.ids(journal.key.topic)) == sorted(key.id for key in keys if key != keys[3])
    assert list(journal.store.ids("unknown")) == []


def test_expired_journals_of_any_day_are_found(new_replicating: NewReplicating) -> None:
    journal = new_replicating()
    for id, days in (("old", 1), ("older", 2), ("young", 3), ("lasting", None)):
        after = None if days is None else timedelta(days=days)
        journal.append(1, expire_after=after, key=Key(id, journal.key.topic))
    journal.flush()
    store = journal.store
    assert isinstance(store, CassandraJournal | PostgresJournal)
    assert set(store.expired(journal.key.topic, (START + timedelta(days=3)).date())) == {"old", "older"}


def test_journals_are_found_by_who_began_them_and_by_their_days(new_replicating: NewReplicating) -> None:
    journal = new_replicating()
    topic = journal.key.topic
    for id, days in (("short", 1), ("long", 9), ("lasting", None)):
        after = None if days is None else timedelta(days=days)
        journal.append(1, 2, expire_after=after, key=Key(id, topic))
    journal.delete(1, key=Key("long", topic))
    journal.flush()
    store = cast("JournalStore", journal.store)

    def ids(where: JournalFilter) -> list[str]:
        return sorted(found.id for found in store.journals(topic, where))

    found = {each.id: each for each in store.journals(topic, JournalFilter())}
    assert sorted(found) == ["lasting", "long", "short"]
    assert (found["long"].seq_nr, found["long"].delete_to, found["long"].origin) == (2, 1, "host")
    assert found["lasting"].expires is None
    assert found["lasting"].created <= found["lasting"].updated
    first, expiry = found["short"].created.date(), found["short"].expires
    assert ids(JournalFilter(created=first)) == ["lasting", "long", "short"]
    assert ids(JournalFilter(created=first - timedelta(days=1))) == []
    assert ids(JournalFilter(expires=expiry)) == ["short"]
    assert ids(JournalFilter(origin="host", created=first, expires=expiry)) == ["short"]
    assert ids(JournalFilter(origin="another")) == []
    assert list(store.journals("unknown", JournalFilter())) == []
