"""Every mutant still applies: its text is in the code, once, and the code that it leads to can be parsed."""

from __future__ import annotations

import ast

import pytest

from tests.proof.mutants import MUTANTS, ROOT, TESTS, Mutant


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_a_mutant_still_applies(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text("utf-8")
    assert text.count(mutant.old) == 1
    ast.parse(text.replace(mutant.old, mutant.new))


def test_there_are_enough_mutants_and_the_tests_that_catch_them_exist() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert [path for paths in TESTS.values() for path in paths if not (ROOT / path.partition("::")[0]).exists()] == []
