"""In Cassandra savers of one journal take turns, and who has lost its turn does not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from inorder.journal.snapshots import LifeAtMark
from inorder.journal.stores.cassandra import CassandraSnapshots
from inorder.model.journal import Snapshot
from tests.contract.snapshot_store.conftest import Store
from tests.contract.snapshot_store.stored import NOON, Stored


@pytest.fixture
def stored(cassandra_snapshots: Store, cassandra_snapshots_url: str, unique: str) -> Iterator[Stored]:
    """Turns last a second."""
    store, replica, _ = cassandra_snapshots
    with closing(CassandraSnapshots(cassandra_snapshots_url, turn_seconds=1)) as snapshots:
        yield Stored(store, replica, snapshots, unique, 2)


def test_a_saver_that_died_is_waited_for_until_its_turn_ends(stored: Stored) -> None:
    stored.append(1)
    snapshots = stored.snapshots
    assert isinstance(snapshots, CassandraSnapshots)
    snapshots._take_turn(f"snapshot {stored.key}", "somebody who died")
    stored.save(1)
    assert stored.saved() == [1]


def test_an_answer_that_was_lost_is_found_to_be_ours(stored: Stored) -> None:
    snapshots = stored.snapshots
    assert isinstance(snapshots, CassandraSnapshots)
    assert snapshots._has_turn(f"snapshot {stored.key}", "token")
    assert snapshots._has_turn(f"snapshot {stored.key}", "token")
    assert not snapshots._has_turn(f"snapshot {stored.key}", "another")


def test_a_turn_ends_when_its_saver_fails(stored: Stored) -> None:
    stored.append(1)

    def fail() -> LifeAtMark:
        raise LookupError("it fails")

    with pytest.raises(LookupError):
        stored.snapshots.save(stored.key, Snapshot(1, None, NOON), 3, fail)
    snapshots = stored.snapshots
    assert isinstance(snapshots, CassandraSnapshots)
    assert snapshots._has_turn(f"snapshot {stored.key}", "the next at once")


def test_a_saver_who_was_paused_loses_and_saves_again(stored: Stored) -> None:
    """It has its mark, and sleeps; another takes the turn and the slot that it would have taken."""
    stored.append(*range(1, 11))
    marks: list[LifeAtMark] = []

    def stand_and_sleep() -> LifeAtMark:
        marks.append(stored.journal._snapshots._settled(9, stored.with_ring(1).deadline("saving")))
        if len(marks) == 1:
            # It waits until the sleeper's turn has ended.
            assert stored.with_ring(1).journal(stored.key).save_snapshot(5, "awake") is not None
        return marks[-1]

    assert stored.snapshots.save(stored.key, Snapshot(9, "slept", NOON), 1, stand_and_sleep)
    assert len(marks) == 2
    assert (stored.saved(), stored.kept()) == ([9], [9])
