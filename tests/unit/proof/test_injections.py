"""The table of injected faults counts what was done, and blames a failed test on all that it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import injections
from tests.injections import FaultedTest, Injections, injects, recovers, tabulate
from tests.proof import results


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def end(found: Injections, *outcomes: str | None) -> FaultedTest:
    """The record of a test whose phases ended so."""
    *_, last = (
        found.end_phase(phase, outcome)
        for phase, outcome in zip(("setup", "call", "teardown"), outcomes or ("passed",) * 3, strict=True)
        if outcome is not None
    )
    assert last is not None
    return last


def test_recovery_is_the_time_until_the_work_goes_on() -> None:
    clock = Clock()
    found = Injections(clock)
    for pause in (1.0, 5.0, 2.0):
        found.note("kill")
        clock.now += pause
        found.recovered()
    found.note("kill")
    [row] = tabulate([end(found)])
    assert row == {"kind": "kill", "count": 4, "recovery_median": 2.0, "recovery_longest": 5.0, "violations": 0}


def test_a_failed_test_is_a_violation_of_each_kind_that_it_injected_and_of_no_other() -> None:
    found = Injections()
    found.note("cut")
    passed = end(found)
    found.note("kill", 3)
    failed = end(found, "passed", "failed", "passed")
    table = tabulate([passed, failed])
    assert {row["kind"]: (row["count"], row["violations"]) for row in table} == {"cut": (1, 0), "kill": (3, 1)}
    assert table[0]["recovery_median"] is None


def test_helpers_are_counted_by_their_decorators() -> None:
    found = Injections()
    before, injections.INJECTIONS = injections.INJECTIONS, found
    try:
        assert injects("cut")(lambda: "done")() == "done"
        assert recovers(lambda: "on")() == "on"
    finally:
        injections.INJECTIONS = before
    of_kind = end(found)["faults"]["cut"]
    assert (of_kind["count"], len(of_kind["seconds"])) == (1, 1)


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [
        (("passed", "passed", "passed"), "passed"),
        (("passed", "failed", "passed"), "failed"),
        (("failed", None, "passed"), "failed"),
        (("passed", "passed", "failed"), "failed"),
        (("skipped", None, "passed"), "skipped"),
    ],
)
def test_a_test_fails_in_any_of_its_phases_and_only_one_that_ran_has_passed(
    outcomes: tuple[str | None, ...], outcome: str
) -> None:
    found = Injections()
    found.note("kill")
    assert end(found, *outcomes)["outcome"] == outcome
    assert end(found)["faults"] == {}, "the next test begins with none"


def test_a_test_has_the_result_of_its_last_run_and_one_that_is_gone_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "test_a.py").write_text("def test_b(): ...")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FILE", tmp_path / "proof.json")
    results.record_test("test_a.py::test_gone", {"outcome": "passed", "faults": {}})
    for outcome in ("failed", "passed"):
        results.record_test("test_a.py::test_b[1]", {"outcome": outcome, "faults": {}})
    kept = results.read()["faults"]["tests"]
    assert {test: one["outcome"] for test, one in kept.items()} == {"test_a.py::test_b[1]": "passed"}
