"""What every table store must do; the one in memory is held to the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from inorder.engines.slice_work import Pointer, Slice, SliceOutcome
from inorder.model.errors import GuaranteeError
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.ports import TableStore
from tests.contract.table_store.places import MAPPING, Place, Sql
from tests.fakes.table_store import message, slice_of

FIRST = slice_of((0, message(1, enabled=True, data="a")), (1, message(2, data="b")), (3, message(1, data="c")))


def test_a_slice_becomes_rows_with_the_version_of_their_last_record(database: Place) -> None:
    outcome = apply_slice(database.open(), MAPPING, FIRST)
    assert outcome == SliceOutcome("upsert", 0, next_offset=4, read=3, applied=3)
    assert database.rows() == {1: (True, "c", 3), 2: (None, "b", 1)}
    assert database.open().pointers("upsert") == {0: Pointer(4)}


def test_the_same_slice_twice_changes_nothing(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, FIRST)
    before = database.rows()
    assert apply_slice(store, MAPPING, FIRST) == SliceOutcome("upsert", 0, next_offset=4, read=3, replayed=3)
    assert database.rows() == before
    assert database.counted() == 3


def test_overlapping_slices_apply_only_what_is_new(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, FIRST)
    overlapping = slice_of((1, message(2, data="old")), (3, message(1, data="old")), (7, message(2, enabled=False)))
    outcome = apply_slice(store, MAPPING, overlapping)
    assert outcome == SliceOutcome("upsert", 0, next_offset=8, read=3, applied=1, replayed=2)
    assert database.rows() == {1: (True, "c", 3), 2: (False, "b", 7)}


def test_partial_updates_keep_the_columns_they_do_not_name(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, enabled=True, data="a"))))
    apply_slice(store, MAPPING, slice_of((1, message(1, enabled=False, data=""))))
    apply_slice(store, MAPPING, slice_of((2, message(1, enabled=None, data="b"))))
    assert database.rows() == {1: (False, "b", 2)}


def test_identical_writes_are_counted_and_leave_the_row_alone(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, FIRST)
    outcome = apply_slice(
        store,
        MAPPING,
        slice_of((4, message(1, data="c")), (5, message(1, enabled=True)), (6, message(2, data="new"))),
    )
    assert (outcome.identical, outcome.applied) == (2, 1)
    assert database.rows() == {1: (True, "c", 3), 2: (None, "new", 6)}


def test_a_value_that_went_and_came_back_takes_the_version_though_it_is_the_same(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(2, data="a"))))
    back = slice_of((2, message(1, data="b")), (3, message(2, data="a")), (4, message(1, data="a")))
    outcome = apply_slice(store, MAPPING, back)
    assert (outcome.applied, outcome.identical) == (2, 1)
    assert database.rows() == {1: (None, "a", 4), 2: (None, "a", 1)}
    assert apply_slice(store, MAPPING, slice_of((2, message(1, data="b")), partition=1)).stale == 1


def test_an_older_record_never_overwrites_a_newer_one_even_without_its_pointer(database: Place) -> None:
    apply_slice(database.open(), MAPPING, slice_of((10, message(1, data="new"))))
    stale = slice_of((5, message(1, data="old")), (6, message(2, data="other")), partition=1)
    outcome = apply_slice(database.open(), MAPPING, stale)
    assert (outcome.applied, outcome.stale, outcome.stale_keys) == (1, 1, ("1",))
    assert database.rows() == {1: (None, "new", 10), 2: (None, "other", 6)}


def test_two_appliers_of_one_slice_at_once_apply_it_once(database: Place) -> None:
    batch = slice_of(*((offset, message(offset % 7, data=str(offset))) for offset in range(200)))
    together = threading.Barrier(4)

    def apply(store: TableStore) -> SliceOutcome:
        together.wait(timeout=60)
        return apply_slice(store, MAPPING, batch)

    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(apply, [database.open() for _ in range(4)], timeout=60))
    assert sorted(outcome.applied for outcome in outcomes) == [0, 0, 0, 200]
    assert database.counted() == 200
    assert {row[2] for row in database.rows().values()} == set(range(193, 200))


def test_partitions_sharing_a_table_do_not_deadlock(database: Place) -> None:
    def apply(partition: int) -> int:
        store = database.open()
        keys = range(50) if partition % 2 else reversed(range(50))
        records = ((offset, message(key, data=f"{partition}")) for offset, key in enumerate(keys))
        return apply_slice(store, MAPPING, slice_of(*records, partition=partition)).read

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(apply, range(8), timeout=60)) == 400
    assert database.counted() == 400


def test_a_pointer_that_moved_back_is_loud_and_writes_nothing(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, FIRST)
    with pytest.raises(GuaranteeError, match=r"upsert\[0\].* is at 4, but 9 was committed"):
        apply_slice(store, MAPPING, slice_of((9, message(1, data="x"))), expected=9)
    assert database.rows()[1] == (True, "c", 3)
    assert apply_slice(store, MAPPING, slice_of((9, message(1, data="x"))), expected=4).applied == 1


def test_dead_letters_keep_coordinates_reason_and_original_bytes(database: Place) -> None:
    huge = b"\x00\xff" * 1_000_000
    batch = Slice(
        "upsert",
        0,
        offsets=[4, 5, 6, 9],
        keys=[b"\x00key", None, b"3", None],
        values=[b"{not json\x00", None, b'{"id":3,"data":"fine"}', huge],
        timestamps=[1_700_000_000_123_456, None, 0, 0],
    )
    outcome = apply_slice(database.open(), MAPPING, batch)
    assert (outcome.rejected, outcome.applied, outcome.next_offset) == (3, 1, 10)
    at = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert database.letters() == [
        (4, "not-json", b"\x00key", b"{not json\x00", at),
        (5, "null-value", None, None, None),
        (9, "too-large", None, huge, epoch),
    ]
    assert database.rows() == {3: (None, "fine", 6)}


def test_each_partition_and_topic_has_its_own_pointer(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((4, message(1, data="a")), partition=1))
    apply_slice(store, MAPPING, slice_of((8, message(2, data="b")), partition=3))
    assert store.pointers("upsert") == {1: Pointer(5), 3: Pointer(9)}
    assert store.pointers("another") == {}


def test_records_without_a_key_are_set_aside_once_the_topic_has_several_pointers(database: Place) -> None:
    store, mapping = database.open(), replace(MAPPING, keyless="reject")
    store.begin("another", None, {0: 0, 1: 0})
    store.begin("upsert", None, {0: 0})
    assert apply_slice(store, mapping, slice_of((0, message(1, data="a")))).applied == 1
    store.begin("upsert", None, {0: 0, 1: 0})
    outcome = apply_slice(store, mapping, slice_of((1, message(1, data="b"))))
    assert (outcome.applied, outcome.rejected) == (0, 1)
    assert [(offset, code, key) for offset, code, key, *_ in database.letters()] == [(1, "no-record-key", None)]
    assert database.rows() == {1: (None, "a", 0)}


def test_fields_that_the_mapping_does_not_name_are_counted_with_the_pointer(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a", colour="red", size=3)), (1, message(2, colour=None))))
    outcome = apply_slice(
        store, MAPPING, slice_of((2, message(1, data="b", colour="blue")), (3, b'{"id": "?", "x": 1}'))
    )
    assert outcome.measures == {"refused/wrong-type": 1, "unknown/colour": 1}
    assert database.unknown() == {"colour": 3, "size": 1}
    apply_slice(store, MAPPING, slice_of((4, message(3, data="c"))))
    assert database.unknown() == {"colour": 3, "size": 1}


def test_pointers_of_an_older_version_have_no_unknown_fields_until_they_are_installed(sql: Sql) -> None:
    store = sql.open()
    sql.look("ALTER TABLE inorder_pointer DROP COLUMN unknown_fields")
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    assert sql.unknown() == {}
    store.install()
    apply_slice(store, MAPPING, slice_of((1, message(1, data="b", colour="red"))))
    assert sql.unknown() == {"colour": 1}
