"""Cells in Cassandra have times of the present: Kafka Journal and people can write after us, and we after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from inorder.journal.replication.job import ReplicateWorker
from inorder.journal.segments import metajournal_segment
from inorder.journal.stores.cassandra_clock import FUTURE_BASE, PartitionClocks, micros_now
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.journal.stores.cassandra_session import CassandraSession
from inorder.model.errors import GuaranteeError
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import Store
from tests.contract.journal_store.replaying import START, Replicating, slice_of
from tests.contract.journal_store.test_cassandra_kills import url_of


class KafkaJournal:
    """Writes a journal as the original's replicator does: with the times of its clock, and without conditions."""

    def __init__(self, journal: Replicating, session: CassandraSession) -> None:
        self._journal = journal
        self._session = session

    def run(self, statement: str, *bound: Any) -> Any:
        prepared = self._session.session.prepare(statement.replace("KEYSPACE", self._session.keyspace))
        return self._session.session.execute(prepared, bound)

    @property
    def place(self) -> tuple[str, int, str]:
        key = self._journal.key
        return key.topic, metajournal_segment(key.id), key.id

    def append(self, seq_nr: int) -> None:
        key, offset = self._journal.key, self._take()
        head = self._journal.store.pointer(key)
        record_id = None if head is None else head.record_id
        self.run(
            "INSERT INTO KEYSPACE.journal (id, topic, segment, seq_nr, partition, offset, timestamp, meta_record_id,"
            " metadata) VALUES (?, ?, ?, ?, 0, ?, ?, ?, '{}')",
            key.id, key.topic, (seq_nr - 1) // 2, seq_nr, offset, START, record_id,
        )  # fmt: skip
        if head is None:
            self.run(
                "INSERT INTO KEYSPACE.metajournal (topic, segment, id, partition, offset, segment_size, seq_nr)"
                " VALUES (?, ?, ?, 0, ?, 2, ?)",
                *self.place, offset, seq_nr,
            )  # fmt: skip
        else:
            self.run(
                "UPDATE KEYSPACE.metajournal SET offset = ?, seq_nr = ? WHERE topic = ? AND segment = ? AND id = ?",
                offset, seq_nr, *self.place,
            )  # fmt: skip
        self._move(offset)

    def purge(self, segments: int) -> None:
        key, offset = self._journal.key, self._take()
        for segment in range(segments):
            self.run(
                "DELETE FROM KEYSPACE.journal WHERE id = ? AND topic = ? AND segment = ?", key.id, key.topic, segment
            )
        self.run("DELETE FROM KEYSPACE.metajournal WHERE topic = ? AND segment = ? AND id = ?", *self.place)
        self._move(offset)

    def _take(self) -> int:
        self._journal.offset += 1
        return self._journal.offset - 1

    def _move(self, offset: int) -> None:
        self.run(
            "UPDATE KEYSPACE.pointer2 SET offset = ?, updated = ? WHERE topic = ? AND partition = 0",
            offset, datetime.now(UTC), self._journal.key.topic,
        )  # fmt: skip


@pytest.fixture
def replica(cassandra_journal: Store) -> Iterator[CassandraReplica]:
    with closing(CassandraReplica(url_of(cassandra_journal))) as opened:
        yield opened


@pytest.fixture
def journal(cassandra_journal: Store, replica: CassandraReplica, unique: str) -> Replicating:
    return Replicating(replica, cassandra_journal[0], Key("id", unique), 2)


@pytest.fixture
def original(journal: Replicating, replica: CassandraReplica) -> KafkaJournal:
    return KafkaJournal(journal, replica._session)


def times(original: KafkaJournal, topic: str) -> list[int]:
    """Of cells of events, heads and offsets."""
    asked = (
        "SELECT WRITETIME(offset) FROM KEYSPACE.journal WHERE id = 'id' AND topic = ? AND segment = 0",
        "SELECT WRITETIME(offset) FROM KEYSPACE.metajournal WHERE topic = ? ALLOW FILTERING",
        "SELECT WRITETIME(offset) FROM KEYSPACE.pointer2 WHERE topic = ? ALLOW FILTERING",
    )
    return [time for each in asked for (time,) in original.run(each, topic)]


def test_cells_have_times_of_the_present_in_the_order_of_offsets(journal: Replicating, original: KafkaJournal) -> None:
    before = micros_now()
    journal.append(1)
    journal.append(2)
    journal.flush()
    first, second, head, offset = times(original, journal.key.topic)
    assert before <= first < second == head == offset < micros_now()


def test_kafka_journal_goes_on_where_we_ended_and_we_where_it_did(journal: Replicating, original: KafkaJournal) -> None:
    for number in (1, 3, 5, 7):
        journal.append(number)
        journal.flush()
        original.append(number + 1)
        assert journal.seen() == list(range(1, number + 2))
        assert journal.store.offset(journal.key.topic, 0) == journal.offset - 1
    journal.delete(3)
    journal.flush()
    assert journal.seen() == [4, 5, 6, 7, 8]


def test_a_journal_that_kafka_journal_has_purged_begins_anew_with_us_and_with_it(
    journal: Replicating, original: KafkaJournal
) -> None:
    journal.append(1, 2, 3)
    journal.flush()
    original.purge(3)
    assert journal.pointer() is None
    journal.append(1)
    journal.append(2)
    journal.flush()
    assert journal.seen() == [1, 2]
    journal.purge()
    journal.flush()
    assert journal.pointer() is None
    original.append(1)
    assert journal.seen() == [1]


def test_rows_that_were_deleted_by_hand_are_replicated_again_once_offset_and_clock_are_deleted_too(
    journal: Replicating, original: KafkaJournal
) -> None:
    journal.append(1, 2)
    journal.append(3)
    records = list(journal._waiting)
    journal.flush()
    topic = journal.key.topic
    for segment in (0, 1):
        original.run("DELETE FROM KEYSPACE.journal WHERE id = 'id' AND topic = ? AND segment = ?", topic, segment)
    original.run("DELETE FROM KEYSPACE.metajournal WHERE topic = ? AND segment = ? AND id = ?", *original.place)
    assert journal.pointer() is None
    original.run("DELETE FROM KEYSPACE.pointer2 WHERE topic = ? AND partition = 0", topic)
    original.run("DELETE FROM KEYSPACE.clock WHERE topic = ? AND partition = 0 IF EXISTS", topic)
    journal.replicate(slice_of(topic, 0, records))
    assert (journal.seen(), journal.pointer()) == ([1, 2, 3], (1, 3))


def test_an_offset_deleted_by_hand_alone_stops_the_replicator(journal: Replicating, original: KafkaJournal) -> None:
    journal.append(1)
    records = list(journal._waiting)
    journal.flush()
    original.run("DELETE FROM KEYSPACE.pointer2 WHERE topic = ? AND partition = 0", journal.key.topic)
    journal.replicate(slice_of(journal.key.topic, 0, records))
    assert journal.store.offset(journal.key.topic, 0) is None
    with pytest.raises(GuaranteeError, match="pointer2"):
        ReplicateWorker(journal.replica, 2).apply(slice_of(journal.key.topic, 0, records), expected=1)


def test_all_replicators_have_one_clock_and_a_clock_that_is_behind_does_no_harm(
    journal: Replicating, replica: CassandraReplica, original: KafkaJournal, cassandra_journal: Store
) -> None:
    topic = journal.key.topic
    late = PartitionClocks(replica._session, now=lambda: micros_now() - 3_600_000_000)
    first = late.settle(topic, 0)
    assert replica._clocks.settle(topic, 0) == first == late.settle(topic, 0)
    journal.append(1)
    journal.flush()
    original.append(2)
    second = late.settle(topic, 0)
    assert second.base > first.base
    assert (
        second == late.settle(topic, 0) == PartitionClocks(CassandraSession(url_of(cassandra_journal))).settle(topic, 0)
    )
    journal.append(3)
    journal.flush()
    assert journal.seen() == [1, 2, 3]


@pytest.mark.full
def test_a_store_of_our_first_version_keeps_its_times_and_its_rows(first_cassandra_journal: Store, unique: str) -> None:
    store, replica = first_cassandra_journal
    assert isinstance(replica, CassandraReplica)
    journal = Replicating(replica, store, Key("id", unique), 2)
    journal.append(1, 2)
    journal.flush()
    journal.append(3)
    journal.delete(1)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([2, 3], (2, 3))
    row = replica._session.execute("written_offset", unique, 0).one()
    assert row[0] == 2
    assert row[1] < FUTURE_BASE  # by compare-and-set, which has a time of its own
    assert times(KafkaJournal(journal, replica._session), unique)[-2:] == [FUTURE_BASE + 2, row[1]]
