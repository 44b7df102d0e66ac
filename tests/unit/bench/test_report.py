"""The report has the shape that scripts rely on, and says the same to people."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from inorder.bench.figures import DrainRate, latency_of
from inorder.bench.report import PipelineReport, ReadBackCheck, Side, show
from inorder.testing.checker import Verdict

REPORT = PipelineReport(
    bench="pipeline",
    rows=1_000,
    peer="raw-copy",
    ours=Side(DrainRate(50.04, 20.0, 1.25), latency_of([1.0, 2.0, 3.0]), {"commit_to_visible_ms": {"p50": 1.5}}),
    peer_result=Side(DrainRate(200.0, 5.0, 0.5), latency_of([1.0]), {}),
    checks={"ours": ReadBackCheck(1_000, 1_000, Verdict()), "peer": ReadBackCheck(1_000, 1_000, Verdict())},
    machine={"cores": 2, "load_average_before": 0.5, "load_average_after": 1.5},
)
BROKEN = replace(REPORT, checks={"ours": ReadBackCheck(999, 999, Verdict(lost=1, examples=("lost: key 7, event 3",)))})
UNRATED = replace(REPORT, peer_result=Side(DrainRate(None, 0.0, 0.5), latency_of([]), {}))


def shown(report: PipelineReport) -> str:
    console = Console(file=StringIO(), width=120)
    show(console, report)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_report_is_one_object_of_known_shape() -> None:
    found = REPORT.as_dict()
    assert set(found) == {"bench", "rows", "peer", "ours", "peer_result", "ratio", "warm_ratio", "checks", "machine"}
    assert found["ours"] == {
        "records_per_second": 50.0,
        "seconds": 20.0,
        "startup_seconds": 1.25,
        "latency_ms": {"p50": 2.0, "p95": 3.0, "p99": 3.0, "max": 3.0, "count": 3},
        "commit_to_visible_ms": {"p50": 1.5},
    }
    assert found["ratio"] == 0.25
    assert found["checks"]["hold"] is True


def test_the_warm_ratio_is_told_where_both_sides_have_one() -> None:
    assert REPORT.as_dict()["warm_ratio"] is None
    warm = DrainRate(400.0, 2.5, 0.0).as_dict()
    both = replace(
        REPORT,
        ours=replace(REPORT.ours, more={"warm": warm}),
        peer_result=replace(REPORT.peer_result, more={"warm": {**warm, "records_per_second": 100.0}}),
    )
    assert both.as_dict()["warm_ratio"] == 4.0
    assert "Warm it is 4.00 times." in shown(both)
    assert "400" in shown(both)


def test_one_broken_check_breaks_the_report() -> None:
    assert not BROKEN.holds
    assert BROKEN.as_dict()["checks"]["hold"] is False


def test_a_person_sees_both_sides_the_ratio_and_the_machine() -> None:
    text = shown(REPORT)
    assert "inorder carries 0.25 times what raw-copy carries." in text
    assert "1,000 rows. 2 cores, load average 0.5 before and 1.5 after." in text
    assert "whole and in order" in text


def test_a_broken_guarantee_is_told_with_an_example() -> None:
    text = shown(BROKEN)
    assert "ours: lost: key 7, event 3" in text
    assert "A guarantee was broken." in text


def test_what_could_not_be_rated_is_not_invented() -> None:
    assert UNRATED.as_dict()["ratio"] is None
    assert "use more --rows" in shown(UNRATED)
