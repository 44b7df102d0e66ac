"""The store contract of the original, on a store in memory that carries out the statements of `transition`."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from inorder.journal.replication.transition import append, delete, purge
from inorder.model.journal import MAX_SEQ_NR
from inorder.testing.memory_journal import MemoryJournalStore
from tests.unit.journal.acting import LIFE, at, record
from tests.unit.journal.world import KEY


@dataclass
class Replica:
    """One journal in a store, and short words for what is applied to it."""

    size: int
    keeps_rows: bool
    store: MemoryJournalStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryJournalStore(keeps_rows=self.keeps_rows)

    def append(self, offset: int, *seq_nrs: int) -> None:
        events = [record(seq_nr, offset) for seq_nr in seq_nrs]
        head = self.store.pointer(KEY)
        change = append(head, at(offset), events, segment_size=self.size, record_id=LIFE)
        self.store.carry_out(KEY, change.statements)
        assert self.store.pointer(KEY) == change.head

    def delete(self, offset: int, to: int) -> None:
        change = delete(self.store.pointer(KEY), at(offset), to, segment_size=self.size, origin=None)
        self.store.carry_out(KEY, change.statements)
        assert self.store.pointer(KEY) == change.head

    def purge(self, offset: int) -> None:
        self.store.carry_out(KEY, purge(self.store.pointer(KEY), at(offset)).statements)

    def read(self, from_seq_nr: int = 1) -> list[int]:
        head = self.store.pointer(KEY)
        return [] if head is None else [event.seq_nr for event in self.store.read(KEY, head, from_seq_nr)]

    @property
    def pointer(self) -> tuple[int, int] | None:
        head = self.store.pointer(KEY)
        return None if head is None else (head.partition_offset.offset, head.seq_nr)


@pytest.fixture(params=[2, 10_000, 2**31 - 1])
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[False, True], ids=["deletes-rows", "keeps-rows"])
def replica(request: pytest.FixtureRequest, size: int) -> Replica:
    return Replica(size, request.param)


@pytest.mark.parametrize("first", [1, 5, 10])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_appended_is_read(replica: Replica, first: int, count: int, at_once: bool) -> None:
    seq_nrs = list(range(first, first + count))
    if at_once and count:
        replica.append(count, *seq_nrs)
    for offset, seq_nr in enumerate([] if at_once else seq_nrs, 1):
        replica.append(offset, seq_nr)
    assert replica.read() == seq_nrs
    assert replica.pointer == ((count, seq_nrs[-1]) if count else None)
    for seq_nr in seq_nrs:
        assert replica.read(seq_nr) == [other for other in seq_nrs if other >= seq_nr]
    assert replica.read(MAX_SEQ_NR) == []


@pytest.mark.parametrize("to", range(1, 11))
@pytest.mark.parametrize("more", [1, 5])
def test_what_is_deleted_is_gone_and_the_journal_goes_on(replica: Replica, to: int, more: int) -> None:
    replica.append(0, *range(1, 11))
    replica.delete(1, to)
    assert replica.read() == list(range(to + 1, 11))
    assert replica.pointer == (1, 10)
    replica.append(2, *range(11, 11 + more))
    assert replica.read() == list(range(to + 1, 11 + more))
    assert replica.pointer == (2, 10 + more)


def test_a_second_delete_of_everything_moves_the_offset_alone(replica: Replica) -> None:
    replica.append(0, 1, 2)
    for offset in (1, 2):
        replica.delete(offset, 2)
        assert (replica.read(), replica.pointer) == ([], (offset, 2))


@pytest.mark.parametrize("to", [1, 2, 5])
@pytest.mark.parametrize("following", [1, 6])
def test_a_delete_of_an_empty_journal_is_a_bound_and_hides_nothing(replica: Replica, to: int, following: int) -> None:
    replica.delete(0, to)
    assert (replica.read(), replica.pointer) == ([], (0, to))
    replica.append(1, following)
    assert (replica.read(), replica.pointer) == ([following], (1, following))


def test_actions_in_turn(replica: Replica) -> None:
    replica.append(2, 1)
    replica.append(4, 2)
    assert replica.pointer == (4, 2)
    replica.delete(5, 1)
    assert (replica.read(), replica.pointer) == ([2], (5, 2))
    replica.append(6, 3)
    replica.delete(7, 3)
    assert (replica.read(), replica.pointer) == ([], (7, 3))
    replica.delete(8, MAX_SEQ_NR)
    assert (replica.read(), replica.pointer) == ([], (8, 3))


def test_after_a_purge_nothing_is_left_and_a_new_life_begins(replica: Replica) -> None:
    replica.append(0, 1, 2, 3)
    replica.purge(1)
    assert (replica.read(), replica.pointer, list(replica.store.ids(KEY.topic))) == ([], None, [])
    if not replica.keeps_rows:
        replica.append(2, 1)
        assert (replica.read(), replica.pointer) == ([1], (2, 1))


def test_offsets_are_kept_by_topic_and_partition() -> None:
    store = MemoryJournalStore()
    store.move_offset("a", 0, 5)
    store.move_offset("a", 0, 4)
    store.move_offset("a", 1, 7)
    assert [store.offset("a", 0), store.offset("a", 1), store.offset("b", 0)] == [5, 7, None]
