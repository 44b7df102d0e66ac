"""Which slot a snapshot takes, which one is loaded, and in which life: decided from values alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.journal.life import Life, life_id
from inorder.journal.reading.head import ReadPlan
from inorder.journal.snapshots import (
    LifeAtMark,
    Placement,
    SnapshotRow,
    has_hole,
    is_beyond,
    is_live,
    is_settled,
    life_at_mark,
    place_snapshot,
    select_snapshots,
)
from inorder.journal.stores.ports import JournalHead
from inorder.journal.stores.rows import SnapshotColumns, snapshot_columns, stored_snapshot
from inorder.model.errors import PermanentError, ValidationError
from inorder.model.journal import Key, PartitionOffset, Snapshot, SnapshotCriteria

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("account-1", "journal")
HERE, FORMER = UUID(int=1), UUID(int=2)


def row(slot: int, seq_nr: int, *, at: int = 5, seconds: int = 0, life: UUID | None = None) -> SnapshotRow:
    return SnapshotRow(slot, seq_nr, NOON + timedelta(seconds=seconds), PartitionOffset(0, at), life)


def standing(at: int = 10, purged_at: int | None = None, life: UUID | None = HERE) -> LifeAtMark:
    return LifeAtMark(PartitionOffset(0, at), life, is_replicated=life is not None, purged_at=purged_at)


class TestTheRing:
    @pytest.mark.parametrize(
        ("rows", "seq_nr", "expected"),
        [
            ([], 1, Placement(0)),
            ([row(0, 1)], 2, Placement(1)),
            ([row(1, 1)], 2, Placement(0)),
            ([row(0, 1), row(1, 2)], 1, Placement(0)),
            ([row(0, 3), row(1, 2), row(2, 4)], 5, Placement(1)),
            ([row(0, 3), row(1, 2), row(2, 4)], 2, Placement(1)),
            ([row(0, 3), row(1, 2), row(2, 4)], 1, None),
            ([row(0, 3), row(7, 2), row(2, 4)], 5, Placement(7)),
        ],
        ids=["empty", "free", "the first free", "same", "full", "full, same", "full of newer ones", "any slot"],
    )
    def test_the_slot_of_a_snapshot(self, rows: list[SnapshotRow], seq_nr: int, expected: Placement | None) -> None:
        assert place_snapshot(rows, standing(), seq_nr, NOON, 3) == expected

    def test_what_is_of_a_former_life_is_free(self) -> None:
        rows = [row(0, 8, at=3), row(1, 9, at=3), row(2, 1, at=7)]
        assert place_snapshot(rows, standing(purged_at=5), 2, NOON, 3) == Placement(0)

    def test_a_ring_that_was_larger_is_cut_down(self) -> None:
        rows = [row(slot, slot + 1) for slot in range(5)]
        assert place_snapshot(rows, standing(), 9, NOON, 2) == Placement(3, (2, 1, 0))
        assert place_snapshot(rows, standing(), 3, NOON, 2) is None
        assert place_snapshot(rows, standing(), 4, NOON, 2) == Placement(3, (2, 1, 0))

    @given(st.lists(st.integers(1, 12)), st.lists(st.integers(1, 6), min_size=1))
    def test_it_has_the_largest_numbers_that_were_ever_saved(self, saves: list[int], sizes: list[int]) -> None:
        size = sizes[0]
        ring: dict[int, SnapshotRow] = {}
        for second, seq_nr in enumerate(saves):
            _save(ring, seq_nr, second, size)
        assert sorted(each.seq_nr for each in ring.values()) == sorted(set(saves))[-size:]
        assert set(ring) <= set(range(size))

    @given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6))))
    def test_whatever_its_size_the_newest_is_always_there(self, saves: list[tuple[int, int]]) -> None:
        ring: dict[int, SnapshotRow] = {}
        for second, (seq_nr, size) in enumerate(saves):
            if _save(ring, seq_nr, second, size):
                assert len(ring) <= max(size, 1)
            numbers = [each.seq_nr for each in ring.values()]
            assert max(numbers) == max(seq_nr for seq_nr, _ in saves[: second + 1])
            assert len(set(numbers)) == len(numbers)

    @given(st.lists(st.integers(1, 12), min_size=1))
    def test_to_save_it_again_changes_nothing_but_its_time(self, saves: list[int]) -> None:
        ring: dict[int, SnapshotRow] = {}
        for second, seq_nr in enumerate(saves):
            _save(ring, seq_nr, second, 3)
        before = {slot: each.seq_nr for slot, each in ring.items()}
        _save(ring, saves[-1], len(saves), 3)
        assert {slot: each.seq_nr for slot, each in ring.items()} == before


def _save(ring: dict[int, SnapshotRow], seq_nr: int, second: int, size: int) -> bool:
    time = NOON + timedelta(seconds=second)
    placed = place_snapshot(list(ring.values()), standing(), seq_nr, time, size)
    if placed is None:
        return False
    for slot in placed.emptied:
        del ring[slot]
    ring[placed.slot] = row(placed.slot, seq_nr, seconds=second)
    return True


class TestLives:
    def test_a_purge_voids_what_was_placed_before_it(self) -> None:
        assert is_live(row(0, 1, at=5), standing())
        assert is_live(row(0, 1, at=5), standing(purged_at=4))
        assert not is_live(row(0, 1, at=5), standing(purged_at=6))

    def test_a_purge_voids_all_of_another_partition(self) -> None:
        elsewhere = SnapshotRow(0, 1, NOON, PartitionOffset(1, 100))
        assert is_live(elsewhere, standing())
        assert not is_live(elsewhere, standing(purged_at=6))

    def test_the_record_id_tells_where_another_program_has_purged(self) -> None:
        assert is_live(row(0, 1, life=HERE), standing())
        assert not is_live(row(0, 1, life=FORMER), standing())
        assert is_live(row(0, 1, life=FORMER), standing(life=None))
        assert is_live(row(0, 1, life=None), standing())

    def test_what_is_placed_behind_the_mark_counts_only_in_the_same_life(self) -> None:
        assert not is_beyond(row(0, 1, at=5), standing())
        assert is_beyond(row(0, 1, at=11), standing())
        assert is_beyond(row(0, 1, at=11, life=FORMER), standing())
        assert not is_beyond(row(0, 1, at=11, life=HERE), standing())
        assert is_beyond(row(0, 1, at=11, life=None), standing(life=None))

    def test_a_life_that_is_not_replicated_has_the_name_that_it_will_have(self) -> None:
        mark, head = PartitionOffset(2, 30), JournalHead(PartitionOffset(2, 20), 10, 5, record_id=HERE)
        assert life_at_mark(KEY, mark, ReadPlan(Life(5), head, 5, None)) == LifeAtMark(mark, HERE, is_replicated=True)
        unreplicated = life_at_mark(KEY, mark, ReadPlan(Life(5), None, 0, 25, 24))
        assert unreplicated == LifeAtMark(mark, life_id(KEY, 2, 25), is_replicated=False, purged_at=24)
        assert unreplicated.stored_life is None

    @pytest.mark.parametrize(("offset", "is_known"), [(29, True), (31, False)])
    def test_only_an_action_before_the_mark_tells_the_life_at_the_mark(self, offset: int, is_known: bool) -> None:
        mark, head = PartitionOffset(2, 30), JournalHead(PartitionOffset(2, offset), 10, 5, record_id=HERE)
        assert is_settled(mark, ReadPlan(Life(5), head, 5, None)) == is_known
        assert is_settled(mark, ReadPlan(Life(5), None, 0, offset)) == is_known


class TestLoading:
    def test_the_latest_is_by_number_then_by_time(self) -> None:
        rows = [row(0, 2, seconds=9), row(1, 3, seconds=1), row(2, 3, seconds=2), row(3, 9, at=1)]
        found = select_snapshots(rows, standing(purged_at=4), SnapshotCriteria())
        assert [each.slot for each in found] == [2, 1, 0]

    @given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))
    def test_bounds_are_included(self, low: int, high: int, seq_nr: int, second: int) -> None:
        time = NOON + timedelta(seconds=second)
        early, late = NOON + timedelta(seconds=3), NOON + timedelta(seconds=6)
        assert SnapshotCriteria(low, high).fits(seq_nr, time) == (low <= seq_nr <= high)
        assert SnapshotCriteria(min_time=early, max_time=late).fits(seq_nr, time) == (3 <= second <= 6)
        assert SnapshotCriteria.of(low).fits(seq_nr, time) == (seq_nr == low)

    def test_bounds_that_are_none_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="min_seq_nr: 0 is not a sequence number"):
            SnapshotCriteria(0)
        with pytest.raises(ValidationError, match="max_time: 2026-01-01 00:00:00 has no time zone"):
            SnapshotCriteria(max_time=datetime(2026, 1, 1))

    @pytest.mark.parametrize(
        ("delete_to", "seq_nr", "has_one"),
        [(0, None, False), (0, 2, False), (2, 2, False), (3, 2, True), (1, None, True)],
    )
    def test_a_hole_is_what_is_deleted_behind_the_snapshot(
        self, delete_to: int, seq_nr: int | None, has_one: bool
    ) -> None:
        snapshot = None if seq_nr is None else Snapshot(seq_nr, None, NOON)
        assert has_hole(ReadPlan(Life(5, delete_to), None, 0, None), snapshot) == has_one
        assert not has_hole(ReadPlan(None, None, 0, None), snapshot)


class TestRows:
    def test_metadata_may_be_any_json_or_none(self) -> None:
        values: list[object] = [None, {}, [1], "text", 7, False]
        for metadata in values:
            snapshot = Snapshot(3, {"a": 1}, NOON, metadata, "here", "1.0")
            assert stored_snapshot(snapshot_columns(snapshot)) == snapshot

    def test_what_no_store_can_hold_is_refused_before_it_is_written(self) -> None:
        with pytest.raises(ValidationError, match="lone surrogate"):
            snapshot_columns(Snapshot(1, "\ud800", NOON))
        with pytest.raises(ValidationError, match="cannot be written as JSON"):
            snapshot_columns(Snapshot(1, None, NOON, metadata=object()))

    def test_a_row_that_contradicts_itself_is_told(self) -> None:
        with pytest.raises(PermanentError, match="metadata of a snapshot is damaged"):
            stored_snapshot(SnapshotColumns(1, NOON, None, None, "{", None, None, None))
        with pytest.raises(PermanentError, match="its text column is empty"):
            stored_snapshot(SnapshotColumns(1, NOON, None, None, None, "json", None, None))
