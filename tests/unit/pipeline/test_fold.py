"""What the records of a key amount to, in every mode."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inorder.pipeline.decoding import Change, Values, fold
from inorder.pipeline.stores.ports import NULL, Assigned, FoldedRow

VALUES = st.tuples(st.sampled_from([None, True, False, NULL]), st.sampled_from([None, "a", "b", NULL]))
CHANGES = st.lists(st.tuples(st.integers(0, 4), st.none() | VALUES), max_size=40).map(
    lambda pairs: [(key, offset, values) for offset, (key, values) in enumerate(pairs)]
)
Row = list[Assigned]


def one_by_one(changes: list[Change], mode: str, stored: Row | None = None) -> dict[object, Row | None]:
    """An independent reading: what each key is after all changes, None where it is deleted, absent where untouched."""
    rows: dict[object, Row | None] = {}
    for key, _, values in changes:
        row = rows.get(key, stored)
        if values is None:
            rows[key] = None
        elif mode == "insert":
            rows[key] = row or list(values)
        elif mode == "upsert" or key not in rows or row is not None:
            base = row if row is not None else [NULL if key in rows else None] * len(values)
            rows[key] = [old if new is None else new for old, new in zip(base, values, strict=True)]
    return rows


@settings(deadline=None)
@given(CHANGES)
def test_folding_equals_applying_the_changes_one_by_one(changes: list[Change]) -> None:
    folded = fold(changes)
    expected = one_by_one(changes, "upsert")
    assert {row.key: row.values and list(row.values) for row in folded} == expected
    assert [row.key for row in folded] == sorted(expected, key=str)
    assert sum(row.records for row in folded) == len(changes)


@settings(deadline=None)
@given(CHANGES)
def test_in_mode_insert_the_first_of_a_key_counts(changes: list[Change]) -> None:
    updates = [change for change in changes if change[2] is not None]
    folded = fold(updates, "insert")
    assert {row.key: row.values and list(row.values) for row in folded} == one_by_one(updates, "insert")
    firsts = {key: offset for key, offset, _ in reversed(updates)}
    assert {row.key: row.offset for row in folded} == firsts
    assert all(row.records == 1 and not row.wavered for row in folded)


@settings(deadline=None)
@given(CHANGES)
def test_in_mode_update_nothing_follows_a_delete(changes: list[Change]) -> None:
    folded = fold(changes, "update")
    assert {row.key: row.values and list(row.values) for row in folded} == one_by_one(changes, "update")


def test_a_folded_row_carries_the_offset_of_its_last_record() -> None:
    changes: list[Change] = [(2, 3, (True, None)), (1, 5, (None, "a")), (2, 9, (None, "b"))]
    assert fold(changes) == [FoldedRow(1, (None, "a"), 5, 1), FoldedRow(2, (True, "b"), 9, 2)]


@pytest.mark.parametrize(
    ("first", "second", "wavered"),
    [
        ((True, None), (None, "a"), False),
        ((True, "a"), (True, None), False),
        ((True, "a"), (False, None), True),
        ((None, "a"), (None, "b"), True),
        ((None, "a"), (None, NULL), True),
        ((True, NULL), (True, NULL), False),
        ((True, "a"), None, True),
        (None, (True, "a"), True),
        (None, None, False),
    ],
)
def test_a_fold_wavers_when_its_records_disagree(first: Values | None, second: Values | None, wavered: bool) -> None:
    [row] = fold([(1, 0, first), (1, 1, second), (1, 2, second)])
    assert row.wavered is wavered


def test_a_row_made_again_after_its_delete_begins_with_nulls() -> None:
    [row] = fold([(1, 0, (True, "a")), (1, 1, None), (1, 2, (None, "b"))])
    assert row == FoldedRow(1, (NULL, "b"), 2, 3, wavered=True)


def test_keys_of_several_columns_are_in_order_too() -> None:
    changes: list[Change] = [((2, "a"), 0, ("x",)), ((1, "b"), 1, ("y",)), ((1, "a"), 2, ("z",))]
    assert [row.key for row in fold(changes)] == [(1, "a"), (1, "b"), (2, "a")]
