"""The table of injected faults counts what was done, and blames a failed test on all that it did."""

from __future__ import annotations

from typing import Any

import pytest

from tests import injections
from tests.injections import Injections, injects, is_whole, recovers


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_recovery_is_the_time_until_the_work_goes_on() -> None:
    clock = Clock()
    found = Injections(clock)
    for pause in (1.0, 5.0, 2.0):
        found.note("kill")
        clock.now += pause
        found.recovered()
    found.note("kill")
    found.end_test(failed=False)
    [row] = found.table()
    assert row == {"kind": "kill", "count": 4, "recovery_median": 2.0, "recovery_longest": 5.0, "violations": 0}


def test_a_failed_test_is_a_violation_of_each_kind_that_it_injected_and_of_no_other() -> None:
    found = Injections()
    found.note("cut")
    found.end_test(failed=False)
    found.note("kill", 3)
    found.end_test(failed=True)
    assert {row["kind"]: (row["count"], row["violations"]) for row in found.table()} == {"cut": (1, 0), "kill": (3, 1)}
    assert found.table()[0]["recovery_median"] is None


def test_helpers_are_counted_by_their_decorators() -> None:
    found = Injections()
    before, injections.INJECTIONS = injections.INJECTIONS, found
    try:
        assert injects("cut")(lambda: "done")() == "done"
        assert recovers(lambda: "on")() == "on"
    finally:
        injections.INJECTIONS = before
    assert found.counts == {"cut": 1}
    assert len(found.seconds["cut"]) == 1


@pytest.mark.parametrize(
    ("outcomes", "passed", "failed", "violations"),
    [
        (("passed", "passed", "passed"), 1, 0, 0),
        (("passed", "failed", "passed"), 0, 1, 1),
        (("failed", None, "passed"), 0, 1, 1),
        (("passed", "passed", "failed"), 0, 1, 1),
        (("skipped", None, "passed"), 0, 0, 0),
    ],
)
def test_a_test_fails_in_any_of_its_phases_and_only_one_that_passed_is_counted(
    outcomes: tuple[str | None, ...], passed: int, failed: int, violations: int
) -> None:
    found = Injections()
    found.note("kill")
    for phase, outcome in zip(("setup", "call", "teardown"), outcomes, strict=True):
        if outcome is not None:
            found.end_phase(phase, outcome)
    assert (found.passed, found.failed, found.table()[0]["violations"]) == (passed, failed, violations)


WHOLE = {"keyword": "", "deselect": None, "lf": False, "maxfail": 0, "file_or_dir": ["tests/fault", "tests/acceptance"]}


@pytest.mark.parametrize("status", [0, 1])
def test_a_run_of_all_tests_is_recorded_whether_they_pass_or_fail(status: int) -> None:
    assert is_whole(WHOLE, status)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"keyword": "storm"}, 0),
        ({"deselect": ["tests/fault/test_a.py"]}, 0),
        ({"lf": True}, 0),
        ({"maxfail": 1}, 1),
        ({"file_or_dir": ["tests/fault/test_a.py::test_b"]}, 0),
        ({}, 2),
    ],
)
def test_a_run_of_some_tests_or_one_that_was_interrupted_is_not_recorded(change: dict[str, Any], status: int) -> None:
    assert not is_whole({**WHOLE, **change}, status)
