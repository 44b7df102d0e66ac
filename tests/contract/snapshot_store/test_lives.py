"""A snapshot belongs to one life of its journal: after a purge it is never loaded again, replicated or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from inorder.journal.snapshots import JournalSnapshots, LifeAtMark
from inorder.model.errors import JournalChangedError
from inorder.model.journal import Event, Snapshot
from tests.conftest import Eventually
from tests.contract.snapshot_store.stored import NOON, Stored


def test_a_replicated_purge_takes_the_snapshots_with_it(stored: Stored) -> None:
    stored.append(1, 2)
    stored.save(1, 2)
    stored.replicate()
    assert stored.saved() == [2, 1]
    stored.journal.purge()
    stored.replicate()
    assert (stored.saved(), stored.kept()) == ([], [])
    stored.append(1, 2, 3)
    stored.replicate()
    assert stored.recovered() == (None, [1, 2, 3])


@pytest.mark.parametrize("is_replicated", [True, False], ids=["life replicated", "nothing replicated"])
def test_a_purge_that_is_not_replicated_hides_them(stored: Stored, is_replicated: bool) -> None:
    stored.append(1, 2)
    stored.save(1, 2)
    if is_replicated:
        stored.replicate()
    stored.journal.purge()
    assert (stored.journal.snapshot(), stored.saved(), stored.recovered()) == (None, [], (None, []))
    stored.append(1, 2, 3)
    assert (stored.journal.snapshot(), stored.saved(), stored.recovered()) == (None, [], (None, [1, 2, 3]))
    assert stored.journal.delete_snapshots() == 0
    stored.replicate()
    assert (stored.saved(), stored.kept(), stored.recovered()) == ([], [], (None, [1, 2, 3]))


@pytest.mark.parametrize("is_replicated", [True, False], ids=["life replicated", "nothing replicated"])
def test_a_life_that_is_not_replicated_has_snapshots_of_its_own(stored: Stored, is_replicated: bool) -> None:
    stored.append(1, 2, 3)
    stored.save(1, 2, 3)
    if is_replicated:
        stored.replicate()
    stored.journal.purge()
    stored.append(1, 2)
    stored.save(1, about="second life, ")
    assert (stored.saved(), stored.recovered()) == ([1], (1, [2]))
    stored.replicate()
    assert (stored.saved(), stored.kept(), stored.recovered()) == ([1], [1], (1, [2]))
    found = stored.journal.snapshot()
    assert found is not None
    assert found.payload == "second life, up to 1"


def test_a_replay_of_the_purge_takes_nothing_of_the_next_life(stored: Stored) -> None:
    stored.append(1)
    stored.save(1)
    stored.journal.purge()
    stored.replicate()
    stored.append(1, 2)
    stored.save(2)
    stored.replicate()
    stored.replicate(first=0)
    assert (stored.saved(), stored.kept(), stored.recovered()) == ([2], [2], (2, []))


def test_a_purge_and_the_next_life_in_one_slice(stored: Stored) -> None:
    stored.append(1)
    stored.save(1)
    stored.replicate()
    stored.journal.purge()
    stored.append(1, 2)
    stored.save(1)
    stored.journal.purge()
    stored.append(1, 2)
    stored.save(2)
    stored.replicate()
    assert (stored.saved(), stored.kept()) == ([2], [2])


def test_events_that_are_deleted_leave_snapshots_alone(stored: Stored) -> None:
    stored.append(1, 2, 3, 4, 5)
    stored.save(2, 5)
    stored.journal.delete()
    assert (stored.saved(), stored.recovered()) == ([5, 2], (5, []))
    stored.replicate()
    assert (stored.saved(), stored.recovered()) == ([5, 2], (5, []))


@pytest.mark.parametrize("begins_anew", [True, False], ids=["begun anew", "purged"])
@pytest.mark.parametrize("is_replicated", [True, False], ids=["life replicated", "nothing replicated"])
def test_a_saver_who_is_overtaken_by_a_purge_saves_nothing_that_is_seen(
    stored: Stored, is_replicated: bool, begins_anew: bool
) -> None:
    stored.append(1, 2, 3)
    if is_replicated:
        stored.replicate()

    def stand_and_wait() -> LifeAtMark:
        standing = snapshots._settled(3, stored.with_ring(3).deadline("saving"))
        stored.journal.purge()
        if begins_anew:
            stored.append(1, 2, 3)
        stored.replicate()
        return standing

    snapshots = stored.journal._snapshots
    assert isinstance(snapshots, JournalSnapshots)
    with suppress(JournalChangedError):
        stored.snapshots.save(stored.key, Snapshot(3, "former life", NOON), 3, stand_and_wait)
    assert (stored.saved(), stored.kept()) == ([], [])
    assert stored.recovered() == (None, [1, 2, 3] if begins_anew else [])


def test_readers_never_see_a_snapshot_with_events_of_another_life(stored: Stored, eventually: Eventually) -> None:
    """One writer lives through several lives, replicated at any time; readers recover all the while."""
    done, faults, seen = threading.Event(), list[str](), set[str]()

    def read() -> None:
        while not done.is_set():
            with suppress(JournalChangedError):
                recovery = stored.journal.recover()
                events = {str(record.event.payload)[0] for record in recovery.events}
                lives = events | ({str(recovery.snapshot.payload)[0]} if recovery.snapshot else set())
                seen.update(lives)
                faults.extend([f"{recovery.snapshot} with {events}"] if len(lives) > 1 else [])

    with _running(read, done), _running(lambda: _replicate_until(stored, done), done):
        for life in range(8):
            for seq_nr in range(1, 6):
                stored.journal.append([Event(seq_nr, f"{life}")])
                if seq_nr in (2, 4):
                    stored.save(seq_nr, about=f"{life}: ")
            # A writer in memory is done with all lives before a reader has begun.
            eventually(lambda: seen)
            stored.journal.delete(3)
            stored.journal.purge()
        done.set()
    assert faults == []
    stored.replicate()
    assert (stored.saved(), stored.kept()) == ([], [])


def _replicate_until(stored: Stored, done: threading.Event) -> None:
    while not done.is_set():
        stored.replicate()


@contextmanager
def _running(work: Callable[[], None], done: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)
        assert not thread.is_alive()
