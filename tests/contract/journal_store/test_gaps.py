"""Numbers that jump: a journal costs what is in it, and not what could be in between."""

from __future__ import annotations

from datetime import timedelta

import pytest

from inorder.journal.replication.store_port import JournalChange, OffsetStatement, Quarantined
from inorder.journal.replication.transition import InsertEvents, InsertHead
from inorder.journal.segments import journal_segment
from inorder.journal.stores import cassandra, cassandra_replica
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.journal.stores.ports import JournalHead
from inorder.model.errors import DamagedRecordError, PermanentError
from inorder.model.journal import MAX_SEQ_NR, Event, EventRecord, Key, PartitionOffset
from tests.contract.journal_store.conftest import NewReplicating, Store
from tests.contract.journal_store.replaying import START, Replicating

FAR = 1_760_000_000_000
"""With segments of 10,000 numbers: 176 million statements if each were deleted."""


@pytest.fixture
def in_cassandra(cassandra_journal: Store, unique: str) -> Replicating:
    """PostgreSQL reads and deletes a range of segments at once, and needs no list of gaps."""
    store, replica = cassandra_journal
    return Replicating(replica, store, Key("id", unique), 10)


@pytest.mark.parametrize("end", [FAR, MAX_SEQ_NR])
@pytest.mark.parametrize("together", [True, False])
def test_a_jump_costs_nothing_to_read_to_delete_and_to_purge(
    new_replicating: NewReplicating, end: int, together: bool
) -> None:
    journal = new_replicating(10)

    def flush() -> None:
        if not together:
            journal.flush()

    for numbers in ([1, 2], [25, 1_000_000], [end]):
        journal.append(*numbers)
        flush()
    journal.flush()
    assert journal.seen() == [1, 2, 25, 1_000_000, end]
    assert journal.seen(26) == [1_000_000, end]
    journal.delete(25)
    flush()
    journal.flush()
    assert journal.seen() == [1_000_000, end]
    journal.delete(end)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([], (4, end))
    journal.purge()
    flush()
    journal.append(1, FAR)
    journal.flush()
    assert journal.seen() == [1, FAR]
    journal.purge()
    journal.append(1)
    journal.flush()
    assert journal.seen() == [1]


def test_a_journal_that_begins_far_behind_a_delete_is_read_at_once(new_replicating: NewReplicating) -> None:
    journal = new_replicating(10)
    journal.delete(5)
    journal.append(FAR)
    journal.flush()
    assert journal.seen() == [FAR]
    journal.purge()
    journal.flush()
    assert journal.seen() == []


def test_more_gaps_than_a_head_lists_park_the_journal(
    in_cassandra: Replicating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cassandra_replica, "MAX_GAPS", 2)
    for number in (1, 100, 200, 300, 301):
        in_cassandra.append(number)
    in_cassandra.flush()
    with pytest.raises(DamagedRecordError, match="offset 3 on are in quarantine"):
        in_cassandra.store.pointer(in_cassandra.key)
    [first, _] = _quarantined(in_cassandra)
    assert "more than 2 gaps" in first.reason


def write_as_another_replicator(journal: Replicating, *seq_nrs: int) -> None:
    """Rows and a head without a list of gaps, as Kafka Journal's replicator writes them."""
    size, place = journal.segment_size, PartitionOffset(0, 0)
    head = JournalHead(place, size, seq_nrs[-1])
    events = [EventRecord(Event(number), START + timedelta(seconds=number % 100), place) for number in seq_nrs]
    rows = [InsertEvents(journal_segment(event.seq_nr, size), (event,), None) for event in events]
    statements = [*(OffsetStatement(0, each) for each in rows), OffsetStatement(0, InsertHead(head, START, None))]
    with journal.replica.slice(journal.key.topic, 0) as writing:
        writing.lock_offset()
        writing.carry_out([JournalChange(journal.key, statements, head)])
        writing.move_offset(0)
    journal.offset = 1


def test_gaps_of_another_replicator_are_read_and_deleted(in_cassandra: Replicating) -> None:
    write_as_another_replicator(in_cassandra, 1, 25, 500)
    assert in_cassandra.seen() == [1, 25, 500]
    in_cassandra.append(FAR)
    in_cassandra.flush()
    assert in_cassandra.seen() == [1, 25, 500, FAR]
    in_cassandra.delete(25)
    in_cassandra.flush()
    assert in_cassandra.seen() == [500, FAR]
    in_cassandra.purge()
    in_cassandra.flush()
    assert in_cassandra.seen() == []


def test_a_gap_of_another_replicator_that_is_too_wide_parks_the_journal_and_stops_no_one(
    in_cassandra: Replicating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cassandra, "MAX_EMPTY", 50)
    write_as_another_replicator(in_cassandra, 1, FAR)
    with pytest.raises(PermanentError, match="more than 50 segments in a row"):
        in_cassandra.seen()
    assert in_cassandra.seen(FAR) == [FAR]
    in_cassandra.append(FAR + 1)
    in_cassandra.purge()
    in_cassandra.append(1)
    in_cassandra.flush()
    with pytest.raises(DamagedRecordError, match="offset 2 on are in quarantine"):
        in_cassandra.store.pointer(in_cassandra.key)
    [first, _] = _quarantined(in_cassandra)
    assert "to delete at once" in first.reason


def _quarantined(journal: Replicating) -> list[Quarantined]:
    assert isinstance(journal.replica, CassandraReplica)
    return journal.replica.quarantined(journal.key.topic)
