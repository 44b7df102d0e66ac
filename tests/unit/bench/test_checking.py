"""A benchmark reports records that were lost, duplicated or reordered."""

from __future__ import annotations

import pytest

from inorder.bench.load import Load
from inorder.bench.report import check_begun, check_counts, check_live, check_table, check_values

LOAD = Load(rows=9, keys=3)
VALUES = [value for _, value in LOAD.records()]


def test_a_topic_that_holds_the_load_is_whole() -> None:
    check = check_values(LOAD, VALUES)
    assert check.verdict.holds
    assert (check.records, check.distinct) == (9, 9)


def test_keys_may_mix_in_any_way_as_long_as_each_keeps_its_order() -> None:
    by_key = sorted(range(9), key=lambda number: number % 3)
    assert check_values(LOAD, [VALUES[number] for number in by_key]).verdict.holds


@pytest.mark.parametrize(
    ("values", "broken"),
    [
        (VALUES[:-1], {"records": 8, "lost": 1}),
        ([*VALUES, VALUES[4]], {"records": 10, "distinct": 9, "duplicated": 1}),
        (VALUES[3:] + VALUES[:3], {"records": 9, "out_of_order": 3}),
    ],
)
def test_what_broke_is_counted(values: list[bytes], broken: dict[str, int]) -> None:
    check = check_values(LOAD, values)
    assert not check.verdict.holds
    assert check.as_dict().items() >= broken.items()


def test_a_table_with_the_final_rows_is_whole() -> None:
    assert check_table(LOAD, LOAD.final_rows(), counted=9).verdict.holds


def test_a_stale_row_is_a_lost_update() -> None:
    stale = LOAD.final_rows() | {2: Load(rows=6, keys=3).final_rows()[2]}
    assert check_table(LOAD, stale, counted=9).as_dict()["lost"] == 1


@pytest.mark.parametrize(("counted", "broken"), [(8, "lost"), (10, "duplicated")])
def test_a_pipeline_that_counts_otherwise_is_not_believed(counted: int, broken: str) -> None:
    assert check_table(LOAD, LOAD.final_rows(), counted).as_dict()[broken] == 1


def test_live_records_must_all_be_seen_once() -> None:
    assert check_live(3, [2, 0, 1]).verdict.holds
    assert check_live(3, [0, 1]).as_dict()["lost"] == 1
    assert check_live(3, [0, 1, 2, 2]).as_dict()["duplicated"] == 1


def test_what_was_carried_of_a_load_in_part_may_end_anywhere_in_each_key() -> None:
    begun = check_begun(VALUES[:4])
    assert begun.verdict.holds
    assert begun.records == 4


@pytest.mark.parametrize(
    ("values", "broken"),
    [
        (VALUES[3:], {"lost": 3}),
        ([*VALUES[:4], VALUES[0]], {"duplicated": 1}),
        ([VALUES[3], VALUES[0]], {"out_of_order": 1}),
    ],
)
def test_a_part_has_no_holes_doubles_or_disorder(values: list[bytes], broken: dict[str, int]) -> None:
    assert check_begun(values).as_dict().items() >= broken.items()


def test_every_writer_finds_what_it_committed() -> None:
    assert check_counts({1: 3, 2: 3, 3: 3}, VALUES).verdict.holds
    assert check_counts({1: 4, 2: 3, 3: 3}, VALUES).as_dict()["lost"] == 1
    assert check_counts({1: 3, 2: 3, 3: 2}, VALUES).as_dict()["phantom"] == 1
