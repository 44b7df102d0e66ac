"""A replicator that remembers heads and sends small writes together leaves in Cassandra what any other would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from inorder.journal.segments import OLD_SEGMENTS, metajournal_segment
from inorder.journal.stores.cassandra_replica import CassandraReplica
from inorder.model.journal import Key
from tests.contract.journal_store.conftest import Store
from tests.contract.journal_store.replaying import Replicating, slice_of
from tests.contract.journal_store.test_cassandra_kills import url_of

LARGE = "x" * 60_000
"""A batch over several partitions would be refused for it."""


@pytest.fixture
def replica(cassandra_journal: Store) -> Iterator[CassandraReplica]:
    with closing(CassandraReplica(url_of(cassandra_journal))) as opened:
        yield opened


@pytest.fixture
def journal(cassandra_journal: Store, replica: CassandraReplica, unique: str) -> Replicating:
    return Replicating(replica, cassandra_journal[0], Key("id", unique), 2)


def test_what_a_rival_did_between_two_slices_is_seen(
    journal: Replicating, replica: CassandraReplica, cassandra_journal: Store
) -> None:
    journal.append(1, 2, 3)
    journal.flush()
    journal.replica = cassandra_journal[1]
    journal.purge()
    journal.append(1)
    journal.flush()
    journal.replica = replica
    journal.append(2)
    journal.flush()
    assert (journal.seen(), journal.pointer()) == ([1, 2], (3, 2))


def test_one_that_was_paused_goes_on_from_its_memory_and_changes_nothing(
    journal: Replicating, cassandra_journal: Store
) -> None:
    journal.append(1, 2)
    journal.flush()
    journal.append(3)
    journal.delete(2)
    journal.purge()
    journal.append(1)
    journal.append(2)
    records, journal._waiting = journal._waiting, []
    rival = Replicating(cassandra_journal[1], journal.store, journal.key, 2)
    with journal.carrying_out(records[:2]):  # its head is from memory
        rival.replicate(slice_of(journal.key.topic, 0, records[:4]))
    assert (journal.seen(), journal.pointer()) == ([1], (4, 1))
    journal.replicate(slice_of(journal.key.topic, 0, records))
    assert (journal.seen(), journal.pointer()) == ([1, 2], (5, 2))


def test_many_journals_of_one_slice_are_written_whatever_their_sizes(journal: Replicating) -> None:
    ids = [Key(f"id-{number}", journal.key.topic) for number in range(23)]
    for turn in (1, 2):
        for number, key in enumerate(ids):
            journal.append(turn, payload=LARGE if number % 7 == turn else "small", key=key)
        if turn > 1:
            journal.delete(1, key=ids[0])
        journal.flush()
    assert [journal.seen(key=key) for key in ids] == [[2], *[[1, 2]] * 22]


def test_a_head_that_an_old_version_has_placed_is_found_kept_there_and_begun_anew_elsewhere(
    journal: Replicating, replica: CassandraReplica
) -> None:
    journal.append(1, 2)
    journal.flush()
    _move_to_old_segment(journal, replica)
    for number in (3, 4):
        journal.append(number)
        journal.flush()
    assert (journal.seen(), journal.pointer(), _places(journal, replica)) == ([1, 2, 3, 4], (2, 4), [False, True])
    journal.purge()
    journal.append(1, 2)
    journal.append(3)
    journal.delete(1)
    journal.flush()
    assert (journal.seen(), journal.pointer(), _places(journal, replica)) == ([2, 3], (6, 3), [True, False])


def _move_to_old_segment(journal: Replicating, replica: CassandraReplica) -> None:
    session, key = replica._session, journal.key
    head, now = journal.store.pointer(key), datetime.now(UTC)
    assert head is not None
    place = key.topic, metajournal_segment(key.id, OLD_SEGMENTS), key.id
    numbers = head.partition_offset.partition, head.partition_offset.offset, head.segment_size, head.seq_nr
    row = *place, *numbers, None, now, now.date(), now, None, None, head.record_id, None, None
    clock = replica._clocks.settle(key.topic, 0)
    session.execute("insert_head", *row, clock.micros(head.partition_offset.offset))
    session.execute("delete_head", clock.micros(0), key.topic, metajournal_segment(key.id), key.id)
    replica._memory.forget([key])


def _places(journal: Replicating, replica: CassandraReplica) -> list[bool]:
    """Whether there is a head where new versions place it, and where old ones did."""
    key, segments = (
        journal.key,
        (metajournal_segment(journal.key.id), metajournal_segment(journal.key.id, OLD_SEGMENTS)),
    )
    answers = [replica._session.execute("head", key.topic, segment, key.id).one() for segment in segments]
    return [answer is not None for answer in answers]
