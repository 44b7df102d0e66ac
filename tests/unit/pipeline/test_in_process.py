"""A work run in this process: it begins at the pointers, ends at the stop or at the end, and raises every error."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from inorder.engines.in_process import InProcess, begin_at
from inorder.engines.progress import RunTotals
from inorder.engines.slice_work import NO_EPOCHS, PartitionReader, Pointer, Reading, Slice, SliceOutcome
from inorder.model.errors import OtherTopicError, TransientError
from inorder.model.partitioning import Extent, Place


@dataclass
class Table:
    """A work that remembers offsets; `fails` makes the slice at an offset fail once."""

    name: str = "test"
    topics: tuple[str, ...] = ("t",)
    needs_headers: bool = False
    found: dict[int, int] = field(default_factory=dict)
    applied: list[tuple[int, int]] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    fails: int | None = None
    ids: set[str | None] = field(default_factory=set)
    is_closed: bool = False

    def open(self) -> Table:
        return self

    def pointers(self, topic: str) -> Mapping[int, Pointer]:
        assert topic == "t"
        return {number: Pointer(offset, topic_id="one", leader_epoch=5) for number, offset in self.found.items()}

    def begin(self, topic: str, topic_id: str | None, firsts: Mapping[int, int]) -> Mapping[int, Pointer]:
        self.found = dict(firsts) | self.found
        return {number: replace(one, topic_id=topic_id) for number, one in self.pointers(topic).items()}

    def apply(self, batch: Slice, expected: int) -> SliceOutcome:
        if batch.offsets[0] == self.fails:
            self.fails = None
            raise TransientError("The database is away.")
        self.expected.append(expected)
        self.ids.add(batch.topic_id)
        self.applied += [(batch.partition, offset) for offset in batch.offsets]
        self.found[batch.partition] = batch.next_offset
        return SliceOutcome("t", batch.partition, batch.next_offset, read=len(batch), applied=len(batch))

    def close(self) -> None:
        self.is_closed = True

    def __hash__(self) -> int:
        return id(self)


@dataclass
class Topic:
    """Two partitions with so many records each, read two at a time."""

    records: int
    readers: int = 0
    id: str = "one"
    epochs: dict[Place, int] = field(default_factory=dict)

    def extents(self, topic: str) -> Mapping[int, Extent]:
        assert topic == "t"
        return {number: Extent(0, self.records) for number in range(2)}

    def partitions(self, topic: str) -> int:
        return len(self.extents(topic))

    def topic_id(self, topic: str) -> str | None:
        return self.id if topic == "t" else None

    def open(
        self,
        starts: Mapping[Place, int | None],
        *,
        headers: bool = False,
        reports_ends: bool = False,
        epochs: Mapping[Place, int] = NO_EPOCHS,
    ) -> PartitionReader:
        assert not headers
        self.readers += 1
        self.epochs = dict(epochs)
        return Reader(self, {place: start or 0 for place, start in starts.items()}, reports_ends)


@dataclass
class Reader:
    topic: Topic
    next: dict[Place, int]
    reports_ends: bool

    def read(self, most: int, seconds: float) -> Reading:
        assert most > 2
        assert seconds < 1
        slices, ended = [], set()
        for place, start in self.next.items():
            offsets = list(range(start, min(start + 2, self.topic.records)))
            self.next[place] = start + len(offsets)
            if offsets:
                slices.append(Slice(*place, offsets, [b"k"] * 2, [b"v"] * len(offsets), [None] * 2))
            elif self.reports_ends:
                ended.add(place)
        return Reading(slices, frozenset(ended))

    def close(self) -> None:
        self.topic.readers -= 1


def test_it_begins_at_the_pointers_and_with_the_first_record_where_there_is_none() -> None:
    begin = begin_at(Table(found={1: 7}), Topic(0), [("t", 0), ("t", 1)])
    assert begin == ({("t", 0): None, ("t", 1): 7}, {("t", 1): 5}, {"t": "one"})


def test_it_does_not_begin_on_another_topic_of_the_same_name() -> None:
    with pytest.raises(OtherTopicError, match="id one were applied, and it now has id two") as caught:
        begin_at(Table(found={1: 7}), Topic(0, id="two"), [("t", 0), ("t", 1)])
    assert caught.value.place == ("t", 1)


def test_the_client_gets_the_leader_epoch_of_the_record_before_and_slices_say_which_topic_they_are_of() -> None:
    table, topic = Table(found={0: 1}), Topic(records=3)
    InProcess(table, topic).run(threading.Event(), once=True)
    assert topic.epochs == {("t", 0): 5, ("t", 1): 5}
    assert table.ids == {"one"}


def test_once_reads_every_partition_to_its_end_and_tells_it() -> None:
    table, topic, progress = Table(found={1: 3}), Topic(records=5), RunTotals()
    InProcess(table, topic).run(threading.Event(), once=True, listener=progress)
    assert sorted(table.applied) == [(0, offset) for offset in range(5)] + [(1, 3), (1, 4)]
    assert progress.totals()["applied"] == 7
    assert (topic.readers, table.is_closed) == (0, True)


def test_the_pointer_that_was_seen_committed_goes_with_every_slice() -> None:
    table = Table(found={0: 2, 1: 5})
    InProcess(table, Topic(records=5)).run(threading.Event(), once=True)
    assert table.expected == [2, 4]


def test_what_fails_it_is_raised_and_the_next_run_goes_on() -> None:
    table, topic = Table(fails=2), Topic(records=4)
    with pytest.raises(TransientError, match="away"):
        InProcess(table, topic).run(threading.Event(), once=True)
    assert (topic.readers, table.is_closed) == (0, True)
    InProcess(table, topic).run(threading.Event(), once=True)
    assert sorted(table.applied) == [(number, offset) for number in range(2) for offset in range(4)]


def test_it_ends_when_it_is_told_to() -> None:
    stop = threading.Event()
    stop.set()
    table = Table()
    InProcess(table, Topic(records=4)).run(stop)
    assert table.applied == []
