"""Every store keeps a ring of snapshots for each journal, loads the latest that matches, and deletes by criteria."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from inorder.model.errors import ValidationError
from inorder.model.journal import Json, Payload, Snapshot, SnapshotCriteria
from tests.contract.snapshot_store.stored import NOON, Stored


@pytest.mark.parametrize(
    "payload", [b"\x00bytes", b"", "text", "", {"json": [1, None]}, [1], Json("text"), Json(None), 7, None], ids=repr
)
def test_everything_about_a_snapshot_comes_back(stored: Stored, payload: Payload) -> None:
    stored.append(1, 2)
    saved = stored.journal.save_snapshot(2, payload, metadata={"who": ["me"]})
    assert saved == Snapshot(2, payload, NOON + timedelta(seconds=2), {"who": ["me"]}, "here", "1.2")
    assert stored.journal.snapshot() == saved
    assert stored.journal.snapshots() == [saved]


def test_there_is_none_before_the_first(stored: Stored) -> None:
    assert (stored.journal.snapshot(), stored.saved()) == (None, [])
    stored.append(1)
    assert (stored.journal.snapshot(), stored.saved(), stored.journal.delete_snapshots()) == (None, [], 0)


def test_the_latest_that_fits_is_loaded(stored: Stored) -> None:
    stored.append(1, 2, 3, 4, 5)
    stored.save(4, 2, 5)
    by_number = {snapshot.seq_nr: snapshot for snapshot in stored.journal.snapshots()}
    assert list(by_number) == [5, 4, 2]

    def latest(criteria: SnapshotCriteria) -> int | None:
        found = stored.journal.snapshot(criteria)
        return None if found is None else found.seq_nr

    assert latest(SnapshotCriteria()) == 5
    assert latest(SnapshotCriteria(max_seq_nr=4)) == 4
    assert latest(SnapshotCriteria(max_seq_nr=3)) == 2
    assert latest(SnapshotCriteria(min_seq_nr=3, max_seq_nr=3)) is None
    assert latest(SnapshotCriteria(max_time=by_number[2].timestamp)) == 4
    assert latest(SnapshotCriteria(min_time=by_number[2].timestamp, max_time=by_number[2].timestamp)) == 2
    assert latest(SnapshotCriteria(max_time=NOON)) is None


def test_one_of_the_same_number_is_replaced_in_its_slot(stored: Stored) -> None:
    stored.append(1, 2)
    stored.save(2, 2)
    stored.journal.save_snapshot(2, b"other")
    assert stored.kept() == [2]
    found = stored.journal.snapshot()
    assert found is not None
    assert found.payload == b"other"


def test_a_full_ring_gives_up_its_smallest_and_never_a_newer_one(stored: Stored) -> None:
    stored.append(*range(1, 10))
    stored.save(5, 3, 7)
    slots = {row.slot for row in stored.snapshots.rows(stored.key)}
    stored.save(9)
    assert stored.saved() == [9, 7, 5]
    assert stored.journal.save_snapshot(3, "too late") is None
    assert stored.saved() == [9, 7, 5]
    assert stored.journal.save_snapshot(6, "in time") is not None
    assert stored.saved() == [9, 7, 6]
    assert {row.slot for row in stored.snapshots.rows(stored.key)} == slots == {0, 1, 2}


def test_a_ring_that_was_made_smaller_keeps_the_newest(stored: Stored) -> None:
    stored.append(*range(1, 10))
    stored.save(1, 2, 3)
    small = stored.with_ring(1).journal(stored.key)
    assert small.save_snapshot(2, "older") is None
    assert stored.kept() == [1, 2, 3]
    assert small.save_snapshot(4, "newest") is not None
    assert (stored.kept(), stored.saved()) == ([4], [4])


def test_a_number_beyond_the_journal_is_refused_naming_both(stored: Stored) -> None:
    with pytest.raises(ValidationError, match=rf"seq_nr: 1 is above 0, and the journal {stored.key} has no event"):
        stored.save(1)
    stored.append(1, 2)
    with pytest.raises(ValidationError, match=rf"seq_nr: 3 is above 2, where the journal {stored.key} ends"):
        stored.save(3)
    with pytest.raises(ValidationError, match="0 is not a sequence number"):
        stored.save(0)
    assert stored.kept() == []


def test_snapshots_are_deleted_by_number_by_time_or_all(stored: Stored) -> None:
    stored.append(*range(1, 6))
    stored.save(1, 3, 5)
    assert stored.journal.delete_snapshots(SnapshotCriteria.of(3)) == 1
    assert stored.journal.delete_snapshots(SnapshotCriteria.of(3)) == 0
    assert stored.saved() == [5, 1]
    last = stored.journal.snapshots()[0].timestamp
    assert stored.journal.delete_snapshots(SnapshotCriteria(min_time=last)) == 1
    assert stored.saved() == [1]
    stored.save(3, 5)
    assert stored.journal.delete_snapshots() == 3
    assert (stored.saved(), stored.kept()) == ([], [])
    stored.save(3)
    assert stored.saved() == [3]


def test_journals_keep_apart(stored: Stored) -> None:
    stored.append(1)
    stored.save(1)
    other = stored.with_ring(3).journal(type(stored.key)("account-2", stored.key.topic))
    assert other.snapshot() is None


def test_of_savers_at_once_the_newest_are_shown(stored: Stored) -> None:
    stored.append(*range(1, 25))
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(stored.save, [24, 3, 17, 8, 22, 1, 19, 23, 11, 5, 2, 20]))
    assert stored.saved() == [24, 23, 22]
    assert stored.kept() == [22, 23, 24]
    found = stored.journal.snapshot()
    assert found is not None
    assert found.payload == "up to 24"
