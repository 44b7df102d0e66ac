"""Records that the database refuses: found among many, tried again, buried with its words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inorder.engines.slice_work import SliceOutcome
from inorder.model.errors import MassRefusalError, RejectedError, TransientError
from inorder.pipeline.brake import Brake
from inorder.pipeline.mapping import TableMapping
from inorder.pipeline.slice import REFUSED, apply_slice
from tests.fakes.table_store import MemoryTableStore, StoredRow, message, slice_of
from tests.selection import examples

MAPPING = TableMapping("demo", "upsert", "messages")


def refuses_bad(row: StoredRow) -> bool:
    return row.values[1] == "bad"


def test_the_refused_record_is_buried_and_the_rest_of_the_slice_is_applied_in_the_same_commit() -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    batch = slice_of(*((offset, message(offset, data="bad" if offset == 70 else "ok")) for offset in range(100)))
    outcome = apply_slice(store, MAPPING, batch)
    assert outcome == SliceOutcome("upsert", 0, next_offset=100, read=100, applied=99, rejected=1)
    [(place, letter)] = store.contents.letters.items()
    assert place == ("upsert", 0, 70)
    assert (letter.code, letter.value) == (REFUSED, message(70, data="bad"))
    assert "(None, 'bad') is refused" in letter.detail
    assert 70 not in store.contents.rows
    assert len(store.contents.tallies["upsert", 0]) == 1


def test_of_a_refused_row_only_the_guilty_records_are_buried() -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    apply_slice(store, MAPPING, slice_of((0, message(1, enabled=True, data="ok"))))
    batch = slice_of(
        (1, message(1, enabled=False)), (2, message(1, data="bad")), (3, b"?"), (4, message(1, enabled=True))
    )
    outcome = apply_slice(store, MAPPING, slice_of(*zip(batch.offsets[:3], batch.values[:3], strict=True)))
    assert (outcome.applied, outcome.rejected) == (1, 2)
    assert store.contents.rows[1] == StoredRow((False, "ok"), (0, 1))
    assert [(at[2], letter.code) for at, letter in store.contents.letters.items()] == [(2, REFUSED), (3, "not-json")]
    assert apply_slice(store, MAPPING, batch).applied == 1
    assert store.contents.rows[1] == StoredRow((True, "ok"), (0, 4))


@examples(60)
@given(st.sets(st.integers(0, 40)), st.integers(1, 3))
def test_whichever_records_are_refused_exactly_they_are_buried(bad: set[int], attempts: int) -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    batch = slice_of(*((key, message(key, data="bad" if key in bad else "ok")) for key in range(40)))
    outcome = apply_slice(store, replace(MAPPING, max_attempts=attempts), batch)
    guilty = bad & set(range(40))
    assert {at[2] for at in store.contents.letters} == guilty
    assert set(store.contents.rows) == set(range(40)) - guilty
    assert (outcome.applied, outcome.rejected) == (40 - len(guilty), len(guilty))


class Patient:
    """A constraint that gives way after some refusals, as one does that waits for another row."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, row: StoredRow) -> bool:
        if row.values[1] != "late":
            return False
        self.left -= 1
        return self.left >= 0


@pytest.mark.parametrize(("refusals", "applied"), [(2, 1), (4, 1), (40, 0)])
def test_a_row_is_tried_again_before_it_is_given_up(refusals: int, applied: int) -> None:
    store = MemoryTableStore(refuses=Patient(refusals))
    outcome = apply_slice(store, MAPPING, slice_of((0, message(1, data="late")), (1, message(2, data="ok"))))
    assert (outcome.applied, outcome.rejected) == (1 + applied, 1 - applied)


def counted(constraint: Callable[[StoredRow], bool]) -> tuple[list[int], Callable[[StoredRow], bool]]:
    asked: list[int] = []

    def ask(row: StoredRow) -> bool:
        asked.append(1)
        return constraint(row)

    return asked, ask


def test_a_flood_is_not_tried_again_and_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    asked, refuses = counted(refuses_bad)
    store = MemoryTableStore(refuses=refuses)
    with caplog.at_level(logging.WARNING, "inorder.pipeline"):
        batch = slice_of(*((key, message(key, data="bad")) for key in range(300)))
        assert apply_slice(store, replace(MAPPING, max_attempts=50), batch).rejected == 300
    assert len(asked) < 4 * 300
    assert len(caplog.records) == 20
    assert (caplog.records[0].getMessage(), vars(caplog.records[0])["offset"]) == ("pipeline.record_refused", 0)


def test_a_fault_of_the_environment_is_never_buried() -> None:
    def breaks(row: StoredRow) -> bool:
        if row.values[1] == "disk full":
            raise TransientError("the disk is full")
        return refuses_bad(row)

    store = MemoryTableStore(refuses=breaks)
    batch = slice_of((0, message(1, data="bad")), (1, message(2, data="disk full")))
    with pytest.raises(TransientError, match="the disk is full"):
        apply_slice(store, MAPPING, batch)
    assert store.contents.letters == {}
    assert store.contents.pointers == {}


def test_an_answer_that_is_lost_while_records_are_isolated_is_settled_too() -> None:
    store = MemoryTableStore(refuses=refuses_bad)
    store.lost_answers.append("committed")
    outcome = apply_slice(store, MAPPING, slice_of((0, message(1, data="bad")), (1, message(2, data="ok"))))
    assert outcome == SliceOutcome("upsert", 0, next_offset=2, read=2, applied=1, rejected=1)
    assert len(store.contents.tallies["upsert", 0]) == 1


def refuses_with_detail(row: StoredRow) -> bool:
    """As PostgreSQL does: its message has no values, its DETAIL has the row."""
    error = RejectedError("the row violates the check constraint")
    error.state, error.detail = "23514", f"the row violates the check constraint: failing row contains {row.values!r}"
    raise error


@pytest.mark.parametrize("records", [1, 2], ids=["one record of a key", "several records of a key"])
def test_the_values_of_a_refused_row_are_in_its_dead_letter_and_neither_in_a_log_nor_in_an_error(
    records: int, caplog: pytest.LogCaptureFixture
) -> None:
    batch = slice_of(*((offset, message(1, data="geheim")) for offset in range(records)))
    store = MemoryTableStore(refuses=refuses_with_detail)
    with caplog.at_level(logging.DEBUG):
        assert apply_slice(store, MAPPING, batch).rejected == records
        with pytest.raises(MassRefusalError) as waits:
            apply_slice(MemoryTableStore(refuses=refuses_with_detail), MAPPING, batch, 0, Brake(0.5))
    assert ["geheim" in letter.detail for letter in store.contents.letters.values()] == [True] * records
    assert [record.getMessage() for record in caplog.records] == ["pipeline.record_refused"] * records
    assert [record for record in caplog.records if "geheim" in str(vars(record))] == []
    assert "geheim" not in str(waits.value)
    assert vars(caplog.records[0])["reason"] in str(waits.value)
