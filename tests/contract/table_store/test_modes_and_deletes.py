"""Modes, deletes, nulls and keys of several columns, in every store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inorder.engines.slice_work import Slice
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import apply_slice
from inorder.pipeline.stores.ports import FoldedRow
from tests.contract.table_store.places import MAPPING, Place
from tests.fakes.table_store import message, slice_of


def keyed(*records: tuple[int, bytes, bytes | None], partition: int = 0) -> Slice:
    """A slice of (offset, key, value)."""
    offsets, keys, values = zip(*records, strict=True)
    return Slice("upsert", partition, list(offsets), list(keys), list(values), [None] * len(records))


def test_a_record_without_a_value_deletes_its_row_and_leaves_a_tombstone(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(2, data="b"))))
    outcome = apply_slice(store, MAPPING, keyed((2, b"1", None)))
    assert (outcome.applied, outcome.rejected) == (1, 0)
    assert database.rows() == {2: (None, "b", 1)}
    assert database.tombstones() == {b"1": 2}


def test_a_late_message_cannot_revive_a_deleted_row(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((5, message(1, data="a"))))
    apply_slice(store, MAPPING, keyed((6, b"1", None)))
    late = apply_slice(store, MAPPING, slice_of((3, message(1, data="late")), (4, message(2, data="x")), partition=1))
    assert (late.stale, late.stale_keys, late.applied) == (1, ("1",), 1)
    assert database.rows() == {2: (None, "x", 4)}


def test_a_delete_of_a_row_that_was_never_there_keeps_older_messages_out_too(database: Place) -> None:
    store = database.open()
    outcome = apply_slice(store, MAPPING, keyed((6, b"1", None)))
    assert (outcome.identical, outcome.applied) == (1, 0)
    assert apply_slice(store, MAPPING, slice_of((3, message(1, data="late")), partition=1)).stale == 1
    assert database.rows() == {}


def test_a_newer_message_makes_the_row_again_with_nothing_of_what_it_was(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, enabled=True, data="a"))))
    apply_slice(store, MAPPING, keyed((1, b"1", None)))
    apply_slice(store, MAPPING, slice_of((2, message(1, data="b"))))
    assert database.rows() == {1: (None, "b", 2)}
    assert database.tombstones() == {}
    together = keyed((3, b"1", message(1, enabled=True)), (4, b"1", None), (5, b"1", message(1, data="c")))
    assert apply_slice(store, MAPPING, together).applied == 3
    assert database.rows() == {1: (None, "c", 5)}
    assert database.tombstones() == {}


def test_an_older_delete_does_not_take_a_newer_row(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((10, message(1, data="new"))))
    late = apply_slice(store, MAPPING, keyed((5, b"1", None), partition=1))
    assert (late.stale, late.stale_keys) == (1, ("1",))
    assert database.rows() == {1: (None, "new", 10)}
    assert database.tombstones() == {}


def test_deletes_and_updates_in_one_slice_keep_their_order(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a")), (1, message(2, data="a"))))
    outcome = apply_slice(
        store, MAPPING, keyed((2, b"1", message(1, data="b")), (3, b"1", None), (4, b"2", message(2, data="c")))
    )
    assert outcome.applied == 3
    assert database.rows() == {2: (None, "c", 4)}
    assert database.tombstones() == {b"1": 3}


def test_where_deletes_are_rejected_they_are_dead_letters(database: Place) -> None:
    mapping = replace(MAPPING, deletes="reject")
    store = database.open(mapping)
    apply_slice(store, mapping, slice_of((0, message(1, data="a"))))
    assert apply_slice(store, mapping, keyed((1, b"1", None))).rejected == 1
    assert database.rows() == {1: (None, "a", 0)}
    assert [letter[:4] for letter in database.letters()] == [(1, "null-value", b"1", None)]


def test_mode_insert_makes_rows_and_never_changes_them(database: Place) -> None:
    mapping = replace(MAPPING, mode="insert")
    store = database.open(mapping)
    first = apply_slice(store, mapping, slice_of((0, message(1, data="a")), (1, message(1, data="b"))))
    assert (first.applied, first.ignored) == (1, 1)
    second = apply_slice(store, mapping, slice_of((2, message(1, enabled=True)), (3, message(2, data="c"))))
    assert (second.applied, second.ignored) == (1, 1)
    assert database.rows() == {1: (None, "a", 0), 2: (None, "c", 3)}


def test_mode_update_changes_rows_and_never_makes_them(database: Place) -> None:
    mapping = replace(MAPPING, mode="update")
    store = database.open(mapping)
    database.insert_empty([1])
    outcome = apply_slice(store, mapping, slice_of((0, message(1, data="a")), (1, message(2, data="b"))))
    assert (outcome.applied, outcome.ignored) == (1, 1)
    assert database.rows() == {1: (None, "a", 0)}
    again = apply_slice(store, mapping, slice_of((2, message(1, data="a")), (3, message(1, data="a"))))
    assert (again.identical, again.applied) == (2, 0)
    gone = apply_slice(store, mapping, keyed((4, b"1", None), (5, b"1", message(1, data="c"))))
    assert (gone.applied, gone.ignored) == (1, 1)
    assert database.rows() == {}


def test_where_nulls_are_written_a_null_empties_its_column_and_an_absent_field_keeps_it(database: Place) -> None:
    mapping = replace(MAPPING, nulls="write")
    store = database.open(mapping)
    apply_slice(store, mapping, slice_of((0, message(1, enabled=True, data="a")), (1, message(2, data="b"))))
    outcome = apply_slice(
        store,
        mapping,
        slice_of((2, message(1, data=None)), (3, message(2, enabled=None)), (4, message(3, enabled=None, data="c"))),
    )
    assert (outcome.applied, outcome.identical) == (2, 1)
    assert database.rows() == {1: (True, None, 2), 2: (None, "b", 1), 3: (None, "c", 4)}


def test_where_empty_texts_are_written_an_empty_text_is_a_value(database: Place) -> None:
    mapping = replace(MAPPING, empty_texts="write")
    store = database.open(mapping)
    apply_slice(store, mapping, slice_of((0, message(1, enabled=True, data="a")), (1, message(2, data=""))))
    outcome = apply_slice(
        store, mapping, slice_of((2, message(1, data="")), (3, message(2, data="")), (4, message(1, enabled="")))
    )
    assert (outcome.applied, outcome.identical, outcome.ignored) == (1, 1, 1)
    assert database.rows() == {1: (True, "", 2), 2: (None, "", 1)}


SEATS = TableMapping(
    "demo", "upsert", "seats", key=("flight", "seat"), key_type=("bigint", "text"), fields=(("taken", "boolean"),)
)


def test_a_key_of_several_columns_names_one_row(database: Place) -> None:
    store = database.open(SEATS)
    records = [(7, "12A", True), (7, "12B", True), (8, "12A", False), (7, "12A", False)]
    batch = slice_of(
        *(
            (at, b'{"flight":%d,"seat":"%s","taken":%s}' % (flight, seat.encode(), str(taken).lower().encode()))
            for at, (flight, seat, taken) in enumerate(records)
        )
    )
    assert apply_slice(store, SEATS, batch).applied == 4
    assert database.rows(SEATS) == {(7, "12A"): (False, 3), (7, "12B"): (True, 1), (8, "12A"): (False, 2)}
    same = slice_of((4, b'{"flight":7,"seat":"12B","taken":true}'), (5, b'{"flight":8,"seat":"12A","taken":true}'))
    outcome = apply_slice(store, SEATS, same)
    assert (outcome.applied, outcome.identical) == (1, 1)
    assert apply_slice(store, SEATS, keyed((6, b'[7,"12A"]', None))).applied == 1
    assert database.rows(SEATS) == {(7, "12B"): (True, 1), (8, "12A"): (True, 5)}
    assert apply_slice(store, SEATS, keyed((2, b'[7,"12A"]', None), partition=1)).stale == 1


NAMED = TableMapping("demo", "upsert", "named", key="name", key_type="text", fields=(("data", "text"),))


@pytest.mark.parametrize("name", ["ä", "a'b\"c\\", "{a,b}", "NULL", "%s", "{rows}", "😀"])
def test_strange_texts_are_keys_and_values_like_any_other(database: Place, name: str) -> None:
    store = database.open(NAMED)
    first = message("", name=name, data=name).replace(b'"id":"",', b"")
    other = message("", name=f"{name} ", data=f"{name} ").replace(b'"id":"",', b"")
    assert apply_slice(store, NAMED, slice_of((0, first), (1, other))).applied == 2
    assert database.rows(NAMED) == {name: (name, 0), f"{name} ": (f"{name} ", 1)}
    again = apply_slice(store, NAMED, slice_of((2, first), (3, first.replace(b'"data":"', b'"data":"A'))))
    assert again.applied == 2
    assert apply_slice(store, NAMED, keyed((4, name.encode(), None))).applied == 1
    assert database.rows(NAMED) == {f"{name} ": (f"{name} ", 1)}
    assert database.tombstones() == {name.encode(): 4}


def test_upper_and_lower_case_and_trailing_blanks_are_different_values(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, slice_of((0, message(1, data="a"))))
    for offset, text in enumerate(["A", "A ", "a", "ä", "a\u0308"], start=1):
        assert apply_slice(store, MAPPING, slice_of((offset, message(1, data=text)))).applied == 1
        assert database.rows() == {1: (None, text, offset)}
        assert apply_slice(store, MAPPING, slice_of((offset, message(1, data=text)), partition=offset)).stale == 1


def test_the_version_of_a_key_is_that_of_its_row_or_of_its_tombstone(database: Place) -> None:
    store = database.open()
    apply_slice(store, MAPPING, keyed((3, b"1", message(1, data="a")), (4, b"2", None)))
    with store.slice_transaction("upsert", 0) as transaction:
        transaction.lock_pointer()
        assert [transaction.version(key) for key in (1, 2, 3)] == [(0, 3), (0, 4), None]


def test_a_newer_generation_is_newer_whatever_the_offset(database: Place) -> None:
    store = database.open()
    with store.slice_transaction("upsert", 0) as transaction:
        transaction.lock_pointer()
        assert transaction.upsert([FoldedRow(1, (True, "old"), 90, 1)], 0).applied == 1
        assert transaction.upsert([FoldedRow(1, (None, "new"), 5, 1)], 1).applied == 1
        assert transaction.upsert([FoldedRow(1, (None, "late"), 95, 1)], 0).stale == 1
        assert transaction.version(1) == (1, 5)
    assert database.rows() == {1: (True, "new", 5)}
