"""Every mutant still applies: its text is in the code, once, and what is recorded of it is what was seen."""

from __future__ import annotations

import ast

import pytest

from tests.proof.mutants import MUTANTS, ROOT, TESTS, Fate, Mutant, merge, verdict


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_a_mutant_still_applies(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text("utf-8")
    assert text.count(mutant.old) == 1
    ast.parse(text.replace(mutant.old, mutant.new))


def test_there_are_enough_mutants_and_the_tests_that_catch_them_exist() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert [path for paths in TESTS.values() for path in paths if not (ROOT / path.partition("::")[0]).exists()] == []


@pytest.mark.parametrize(
    ("status", "output", "found"),
    [
        (0, "3 passed", (None, "")),
        (1, "FAILED tests/a.py::test_b - assert", ("tests/a.py::test_b", "")),
        (1, "ERROR tests/a.py::test_b - fixture", (None, "exit 1")),
        (2, "ERROR tests/a.py - ImportError", (None, "exit 2")),
        (4, "no such file", (None, "exit 4")),
        (5, "no tests ran", (None, "exit 5")),
    ],
)
def test_only_a_test_that_failed_catches_a_mutant(status: int, output: str, found: tuple[str | None, str]) -> None:
    assert verdict(status, output) == found


def test_a_mutant_keeps_the_date_of_its_run_and_the_whole_is_as_old_as_the_oldest() -> None:
    one, other = MUTANTS[:2]
    before = merge([], [Fate(one, "test_a"), Fate(other, "test_b")], "2026-01-01")
    after = merge(before["mutants"], [Fate(other, "test_c")], "2026-02-02")
    assert {each["name"]: (each["caught_by"], each["date"]) for each in after["mutants"]} == {
        one.name: ("test_a", "2026-01-01"),
        other.name: ("test_c", "2026-02-02"),
    }
    assert after["date"] == "2026-01-01"
