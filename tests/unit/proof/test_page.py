"""The page about proofs says what was recorded, and nothing else."""

from __future__ import annotations

from tests.proof.mutants import MUTANTS
from tests.proof.page import PAGE, render
from tests.proof.results import read
from tests.proof.simulate import merge


def test_the_page_is_what_the_recorded_results_lead_to() -> None:
    assert PAGE.read_text("utf-8") == render(read()), "Run `python -m tests.proof.page`."


def test_without_results_the_page_says_so() -> None:
    assert render({}).count("Not recorded yet.") == 4


def test_no_recorded_result_is_a_violation() -> None:
    mutants = read().get("mutants", {}).get("mutants", [])
    assert [one["name"] for one in mutants if one["caught_by"] is None] == []
    assert {one["name"] for one in mutants} <= {mutant.name for mutant in MUTANTS}
    simulated = read().get("simulation", {})
    assert [kind for kind, one in simulated.items() if kind != "date" and one["violations"]] == []
    faulted = read().get("faults", {}).get("tests", {})
    assert [test for test, one in faulted.items() if one["outcome"] != "passed"] == []


def test_a_kind_of_simulation_keeps_the_date_of_its_run() -> None:
    sums = {"seeds": 10, "effects": 1, "faults": 1, "violations": 0}
    before = {"relay": {**sums, "date": "2026-01-01"}, "slice": {**sums, "date": "2026-01-01"}}
    after = merge(before, {"slice": {**sums, "seeds": 20}}, "2026-02-02")
    assert (after["date"], after["relay"]["date"], after["slice"]["date"]) == ("2026-01-01", "2026-01-01", "2026-02-02")
    assert "| slice | 2026-02-02 | 20 |" in render({"simulation": after})
