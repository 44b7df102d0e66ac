"""The table of injected faults counts what was done, and blames a failed test on all that it did."""

from __future__ import annotations

from tests import injections
from tests.injections import Injections, injects, recovers


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
