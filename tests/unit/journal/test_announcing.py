"""What a replicator announces: how far the store is after each slice, whoever has brought it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from inorder.engines.slice_work import Pointer, Slice, SliceOutcome
from inorder.journal.replication.job import AnnouncingWorker, ReplicateWork, ReplicateWorker
from inorder.model.errors import TransientError
from tests.fakes.replica import MemoryReplica


@dataclass
class Told:
    """An announcer that keeps everything."""

    offsets: list[tuple[str, int, int]] = field(default_factory=list)
    is_closed: bool = False

    def announce(self, topic: str, partition: int, offset: int) -> None:
        self.offsets.append((topic, partition, offset))

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Worker:
    """A worker that does what it is told."""

    act: Callable[[Slice], SliceOutcome]
    is_closed: bool = False

    def pointers(self, topic: str) -> dict[int, Pointer]:
        return {0: Pointer(len(topic))}

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        assert expected == 7
        return self.act(batch)

    def close(self) -> None:
        self.is_closed = True


def batch(*offsets: int, partition: int = 0) -> Slice:
    nothing = [None] * len(offsets)
    return Slice("journal", partition, offsets, nothing, nothing, nothing, headers=[()] * len(offsets))


def outcome(next_offset: int) -> Callable[[Slice], SliceOutcome]:
    return lambda batch: SliceOutcome(batch.topic, batch.partition, next_offset, read=len(batch))


def test_the_last_offset_that_the_store_has_is_told_after_the_slice() -> None:
    told = Told()
    assert AnnouncingWorker(Worker(outcome(5)), told).apply(batch(3, 4), 7) == SliceOutcome("journal", 0, 5, read=2)
    assert told.offsets == [("journal", 0, 4)]


def test_what_another_replicator_has_applied_is_told_too() -> None:
    told = Told()
    AnnouncingWorker(Worker(outcome(100)), told).apply(batch(3, 4, partition=2), 7)
    assert told.offsets == [("journal", 2, 99)]


def test_nothing_is_told_of_a_slice_that_failed_nor_of_a_store_without_an_offset() -> None:
    def fail(_: Slice) -> SliceOutcome:
        raise TransientError("The store is away.")

    told = Told()
    with pytest.raises(TransientError):
        AnnouncingWorker(Worker(fail), told).apply(batch(3), 7)
    AnnouncingWorker(Worker(outcome(0)), told).apply(batch(), 7)
    assert told.offsets == []


def test_it_is_the_worker_in_all_else_and_closes_both() -> None:
    told, worker = Told(), Worker(outcome(1))
    announcing = AnnouncingWorker(worker, told)
    assert announcing.pointers("abc") == {0: Pointer(3)}
    announcing.close()
    assert (told.is_closed, worker.is_closed) == (True, True)


def test_a_work_announces_only_where_it_is_asked_to() -> None:
    told = Told()
    assert isinstance(ReplicateWork(("journal",), MemoryReplica).open(), ReplicateWorker)
    worker = ReplicateWork(("journal",), MemoryReplica, announcers=lambda: told).open()
    worker.apply(batch(0, 1), 0)
    worker.apply(batch(0, 1), 0)
    worker.apply(batch(5), 0)
    assert [offset for _, _, offset in told.offsets] == [1, 1, 5]
