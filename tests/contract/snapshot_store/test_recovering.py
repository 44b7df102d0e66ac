"""A journal is recovered from its latest snapshot and every event behind it, or from all events; never with a hole."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from inorder.model.errors import SnapshotTooOldError
from inorder.model.journal import SnapshotCriteria
from tests.contract.snapshot_store.conftest import NewStored
from tests.contract.snapshot_store.stored import Stored, shown


class Case(NamedTuple):
    """A row of the seed's table "cases on how records can be stored"."""

    end: int
    delete_to: int | None
    segment_size: int
    events: list[int]
    snapshots: tuple[int, ...]
    recovered: tuple[int | None, list[int]]


CASES = (
    Case(3, None, 5, [1, 2, 3], (), (None, [1, 2, 3])),
    Case(5, None, 3, [1, 2, 3, 4, 5], (), (None, [1, 2, 3, 4, 5])),
    Case(5, 2, 3, [3, 4, 5], (), (None, [3, 4, 5])),
    Case(5, None, 3, [1, 2, 3, 4, 5], (5,), (5, [])),
    Case(5, 5, 3, [], (), (None, [])),
    Case(5, 5, 3, [], (5,), (5, [])),
    Case(5, 5, 3, [], (2, 5), (5, [])),
)


@pytest.mark.parametrize("case", CASES, ids=[str(number) for number in range(1, 8)])
@pytest.mark.parametrize("is_replicated", [True, False], ids=["replicated", "not replicated"])
def test_the_ways_in_which_a_journal_can_be_stored(new_stored: NewStored, case: Case, is_replicated: bool) -> None:
    stored = new_stored(case.segment_size)
    stored.append(*range(1, case.end + 1))
    stored.save(*case.snapshots)
    if case.delete_to is not None:
        stored.journal.delete(case.delete_to)
    if is_replicated:
        stored.replicate()
    assert stored.journal.pointer() == case.end
    assert [record.seq_nr for record in stored.journal.read()] == case.events
    assert stored.saved() == sorted(case.snapshots, reverse=True)
    assert stored.recovered() == case.recovered


@pytest.mark.parametrize("replicated", [None, 1, 3, 99], ids=lambda end: f"{end} records replicated")
def test_events_behind_the_snapshot_come_from_store_and_log(stored: Stored, replicated: int | None) -> None:
    stored.append(1, 2)
    stored.append(3)
    stored.append(4, 5)
    stored.append(8)
    stored.save(3)
    if replicated is not None:
        stored.replicate(end=replicated)
    assert stored.recovered() == (3, [4, 5, 8])
    assert shown(stored.journal.recover(SnapshotCriteria(max_seq_nr=2))) == (None, [1, 2, 3, 4, 5, 8])
    stored.append(9)
    assert stored.recovered() == (3, [4, 5, 8, 9])


def test_without_its_snapshot_a_journal_is_read_from_its_first_event(stored: Stored) -> None:
    stored.append(1, 2, 3)
    stored.save(2)
    stored.journal.delete_snapshots()
    assert stored.recovered() == (None, [1, 2, 3])


@pytest.mark.parametrize("is_replicated", [True, False], ids=["replicated", "not replicated"])
def test_a_snapshot_whose_following_events_are_deleted_is_refused(stored: Stored, is_replicated: bool) -> None:
    stored.append(1, 2, 3, 4, 5, 6)
    stored.save(2, 5)
    stored.journal.delete(5)
    if is_replicated:
        stored.replicate()
    assert stored.recovered() == (5, [6])
    with pytest.raises(SnapshotTooOldError, match="is at 2, but its events are deleted up to 5") as error:
        stored.journal.recover(SnapshotCriteria(max_seq_nr=4))
    assert (error.value.seq_nr, error.value.delete_to) == (2, 5)
    older = stored.journal.snapshot(SnapshotCriteria(max_seq_nr=4))
    assert older is not None
    assert older.seq_nr == 2
    stored.journal.delete_snapshots()
    assert stored.recovered() == (None, [6])
