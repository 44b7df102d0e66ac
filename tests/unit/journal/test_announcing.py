"""A replicator announces the store's offset after each slice, even if another replicator wrote the slice."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from inorder.engines.slice_work import Slice, SliceOutcome
from inorder.journal.replication.job import ReplicateWork, ReplicateWorker
from inorder.model.errors import TransientError
from tests.fakes.replica import MemoryReplica


@dataclass
class RecordingAnnouncer:
    """An announcer that keeps everything."""

    offsets: list[tuple[str, int, int]] = field(default_factory=list)
    is_closed: bool = False

    def announce(self, topic: str, partition: int, offset: int) -> None:
        self.offsets.append((topic, partition, offset))

    def close(self) -> None:
        self.is_closed = True


class Closable(MemoryReplica):
    """A store that records whether it was closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def batch(*offsets: int, partition: int = 0) -> Slice:
    nothing = [None] * len(offsets)
    return Slice("journal", partition, offsets, nothing, nothing, nothing, headers=[()] * len(offsets))


def test_the_last_offset_that_the_store_has_is_told_after_the_slice() -> None:
    announcer = RecordingAnnouncer()
    outcome = ReplicateWorker(MemoryReplica(), 3, announcer=announcer).apply(batch(3, 4), 0)
    assert outcome == SliceOutcome("journal", 0, 5, read=2, ignored=2)
    assert announcer.offsets == [("journal", 0, 4)]


def test_what_another_replicator_has_applied_is_told_too() -> None:
    announcer, store = RecordingAnnouncer(), MemoryReplica()
    ReplicateWorker(store, 3).apply(batch(99, partition=2), 0)
    ReplicateWorker(store, 3, announcer=announcer).apply(batch(3, 4, partition=2), 0)
    assert announcer.offsets == [("journal", 2, 99)]


def test_nothing_is_told_of_a_slice_that_failed_nor_of_a_store_without_an_offset() -> None:
    announcer, store = RecordingAnnouncer(), MemoryReplica()
    store.dies_at = 0
    worker = ReplicateWorker(store, 3, announcer=announcer)
    with pytest.raises(TransientError):
        worker.apply(batch(3), 0)
    worker.apply(batch(), 0)
    assert announcer.offsets == []


def test_it_closes_the_store_and_the_announcer() -> None:
    announcer, store = RecordingAnnouncer(), Closable()
    ReplicateWorker(store, 3, announcer=announcer).close()
    assert (announcer.is_closed, store.is_closed) == (True, True)


def test_a_work_announces_only_where_it_is_asked_to() -> None:
    announcer = RecordingAnnouncer()
    assert isinstance(ReplicateWork(("journal",), MemoryReplica).open(), ReplicateWorker)
    worker = ReplicateWork(("journal",), MemoryReplica, announcers=lambda: announcer).open()
    worker.apply(batch(0, 1), 0)
    worker.apply(batch(0, 1), 0)
    worker.apply(batch(5), 0)
    assert [offset for _, _, offset in announcer.offsets] == [1, 1, 5]
