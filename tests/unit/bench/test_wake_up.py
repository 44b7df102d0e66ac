"""Writers are compared by the same INSERT with and without the wake-up."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from inorder.bench.report import ReadBackCheck
from inorder.bench.wake_up import WakeUpOptions, WakeUpReport, WakeUpTrials, Writing, show_wake_up, without_wake_up
from inorder.model.errors import PermanentError
from inorder.outbox.append import append_statement
from inorder.testing.checker import Verdict

TRIALS = WakeUpTrials(
    waking=[Writing(900.0, 1.0), Writing(850.0, 1.5), Writing(100.0, 1.0)],
    plain=[Writing(1_000.0, 0.5), Writing(990.0, None), Writing(1_010.0, 0.5)],
    check=ReadBackCheck(5_000, 5_000, Verdict()),
)
REPORT = WakeUpReport(WakeUpOptions(), TRIALS, {"cores": 2, "load_average_before": 0.5, "load_average_after": 1.5})
BROKEN = replace(REPORT, trials=replace(TRIALS, check=ReadBackCheck(5_000, 4_999, Verdict(lost=1, duplicated=1))))


def test_the_wake_up_and_nothing_else_is_cut_out_of_the_insert() -> None:
    with_it = append_statement("outbox", "postgresql").pyformat
    plain = without_wake_up(with_it)
    assert "pg_notify" in with_it
    assert "pg_notify" not in plain
    assert "advisory" not in plain
    assert set(plain.splitlines()) <= set(with_it.splitlines())
    assert plain.splitlines()[0] == with_it.splitlines()[0]
    assert "ORDER BY place" in plain


@pytest.mark.parametrize(
    "statement", ["INSERT INTO outbox VALUES (1)", "SELECT 1\nWHERE x\nORDER BY place, pg_notify()"]
)
def test_a_statement_of_another_shape_is_not_measured_by_mistake(statement: str) -> None:
    with pytest.raises(PermanentError, match="another shape"):
        without_wake_up(statement)


def test_the_ratio_is_what_writers_keep_of_their_rate() -> None:
    found = REPORT.as_dict()
    assert found["ratio"] == 0.85
    assert found["target"] == 0.85
    assert found["commits_per_second"]["plain"]["median"] == 1_000.0
    assert found["relay_cpu_seconds"]["plain"]["trials"] == 2


def test_a_person_sees_both_rates_and_what_is_kept() -> None:
    console = Console(file=StringIO(), width=140)
    show_wake_up(console, REPORT)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "with the wake-up: 850 (100..900) commits a second" in text
    assert "They keep 85% of their rate; the aim is 85%." in text


def test_what_was_lost_breaks_the_report() -> None:
    assert REPORT.holds
    assert not BROKEN.holds
